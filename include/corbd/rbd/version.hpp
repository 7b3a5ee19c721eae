// Versions of this process's Ceph libraries.
#pragma once

#include <string>

namespace corbd::rbd {

/// Returns "librados 3.0.0, librbd 1.17.0".
std::string library_versions();
/// Returns the version of the library's interface: "3.0.0".
std::string librados_version();
std::string librbd_version();
/// Returns the Ceph release of librados: "16.2.15". Empty: unknown.
std::string ceph_release();

}  // namespace corbd::rbd
