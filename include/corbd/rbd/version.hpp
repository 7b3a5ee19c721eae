// Which Ceph libraries this process has.
#pragma once

#include <string>

namespace corbd::rbd {

/// "librados 3.0.0, librbd 1.17.0"
std::string library_versions();

}  // namespace corbd::rbd
