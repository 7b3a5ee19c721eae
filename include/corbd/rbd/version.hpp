// Which Ceph libraries this process has.
#pragma once

#include <string>

namespace corbd::rbd {

/// "librados 3.0.0, librbd 1.17.0"
std::string library_versions();
/// The version of the library's interface: "3.0.0".
std::string librados_version();
std::string librbd_version();
/// Ceph's release that librados is of: "16.2.15". Empty: it does not tell.
std::string ceph_release();

}  // namespace corbd::rbd
