#include <sys/statvfs.h>

#include <cerrno>

#include "failure.hpp"
#include "mountinfo.hpp"
#include "ops.hpp"
#include "target.hpp"

namespace corbd::host::ops {

result<Usage> usage(const std::string& target) {
  const auto opened = open_target(target);
  if (!opened) return opened.error();
  const auto mounted = *opened ? mount_at((*opened)->get(), target) : std::optional<Mount>();
  if (!mounted) return mounted.error();
  // Below lies the node's own filesystem.
  if (!*mounted) return Error{errc::not_found, "nothing is mounted at " + target};
  struct statvfs told{};
  if (::fstatvfs((*opened)->get(), &told) != 0) return failure("asking how full " + target + " is", errno);
  Usage usage;
  usage.bytes = told.f_blocks * told.f_frsize;
  usage.bytes_used = (told.f_blocks - told.f_bfree) * told.f_frsize;
  usage.bytes_available = told.f_bavail * told.f_frsize;
  usage.inodes = told.f_files;
  usage.inodes_used = told.f_files - told.f_ffree;
  usage.inodes_available = told.f_favail;
  return usage;
}

}  // namespace corbd::host::ops
