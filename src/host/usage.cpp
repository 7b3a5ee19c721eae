// Implements ops::usage and ops::trim: reads how much a mounted filesystem uses, and gives back the rest.
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <limits>

#include "failure.hpp"
#include "ops.hpp"
#include "target.hpp"

namespace corbd::host::ops {

result<std::uint64_t> trim(const std::string& target) {
  const auto root = open_mounted_folder(target);
  if (!root) return root.error();
  fstrim_range range{0, std::numeric_limits<std::uint64_t>::max(), 0};
  if (::ioctl(root->get(), FITRIM, &range) == 0) return range.len;
  if (errno == EOPNOTSUPP || errno == ENOTTY)
    return Error{errc::unimplemented, "the filesystem at " + target + ", or its device, cannot discard"};
  return failure("discarding the free space at " + target, errno);
}

result<Usage> usage(const std::string& target) {
  const auto opened = open_mounted(target);
  if (!opened) return opened.error();
  struct statvfs told{};
  if (::fstatvfs(opened->get(), &told) != 0) return failure("asking how full " + target + " is", errno);
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
