#include "corbd/rbd/version.hpp"

#include <dlfcn.h>
#include <rados/librados.h>
#include <rbd/librbd.h>

namespace corbd::rbd {

std::string library_versions() {
  int major = 0, minor = 0, extra = 0;
  const auto text = [&] { return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(extra); };
  ::rados_version(&major, &minor, &extra);
  std::string all = "librados " + text();
  ::rbd_version(&major, &minor, &extra);
  return all + ", librbd " + text();
}

// librados' own number (3.0.0) is that of its interface, which has not changed for years. Its release is a C++ symbol
// of libceph-common, which librados brings along (src/common/version.h there).
std::string ceph_release() {
  using Say = const char* (*)();
  const auto say = reinterpret_cast<Say>(::dlsym(RTLD_DEFAULT, "_Z19ceph_version_to_strv"));
  const char* const said = say == nullptr ? nullptr : say();
  return said == nullptr ? std::string() : std::string(said);
}

}  // namespace corbd::rbd
