#include "corbd/rbd/version.hpp"

#include <dlfcn.h>
#include <rados/librados.h>
#include <rbd/librbd.h>

namespace corbd::rbd {

namespace {

std::string version_of(void (*library)(int*, int*, int*)) {
  int major = 0, minor = 0, extra = 0;
  library(&major, &minor, &extra);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(extra);
}

}  // namespace

std::string librados_version() { return version_of(::rados_version); }
std::string librbd_version() { return version_of(::rbd_version); }
std::string library_versions() { return "librados " + librados_version() + ", librbd " + librbd_version(); }

// librados' own number (3.0.0) is that of its interface, which has not changed for years. Its release is a C++ symbol
// of libceph-common, which librados brings along (src/common/version.h there).
std::string ceph_release() {
  using Say = const char* (*)();
  const auto say = reinterpret_cast<Say>(::dlsym(RTLD_DEFAULT, "_Z19ceph_version_to_strv"));
  const char* const said = say == nullptr ? nullptr : say();
  return said == nullptr ? std::string() : std::string(said);
}

}  // namespace corbd::rbd
