#include "corbd/rbd/version.hpp"

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

}  // namespace corbd::rbd
