// ops::usage and ops::trim: tell what a mounted filesystem uses, and give back the rest.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <limits>

#include "failure.hpp"
#include "mountinfo.hpp"
#include "ops.hpp"
#include "target.hpp"

namespace corbd::host::ops {
namespace {

/// Use O_PATH: below an unmounted target lies the node's own filesystem.
result<Fd> open_mounted(const std::string& target) {
  auto opened = open_target(target);
  if (!opened) return opened.error();
  const auto mounted = *opened ? mount_at((*opened)->get(), target) : std::optional<Mount>();
  if (!mounted) return mounted.error();
  if (!*mounted) return Error{errc::not_found, "nothing is mounted at " + target};
  return std::move(**opened);
}

}  // namespace

result<std::uint64_t> trim(const std::string& target) {
  const auto opened = open_mounted(target);
  if (!opened) return opened.error();
  const Fd root(::open(("/proc/self/fd/" + std::to_string(opened->get())).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return failure("opening " + target, errno);
  fstrim_range range{0, std::numeric_limits<std::uint64_t>::max(), 0};
  if (::ioctl(root.get(), FITRIM, &range) == 0) return range.len;
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
