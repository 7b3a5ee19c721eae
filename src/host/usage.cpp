// Implements ops::usage, ops::trim and ops::trim_from: reads how much a mounted filesystem uses, and gives back the
// rest.
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <limits>

#include "failure.hpp"
#include "ops.hpp"
#include "target.hpp"

namespace corbd::host::ops {

namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

Error not_trimmed(const std::string& target) {
  if (errno == EOPNOTSUPP || errno == ENOTTY)
    return Error{errc::unimplemented, "the filesystem at " + target + ", or its device, cannot discard"};
  return failure("discarding the free space at " + target, errno);
}

}  // namespace

result<std::uint64_t> trim(const std::string& target) {
  const auto root = open_mounted_folder(target);
  if (!root) return root.error();
  fstrim_range range{0, kMost, 0};
  if (::ioctl(root->get(), FITRIM, &range) != 0) return not_trimmed(target);
  return range.len;
}

result<TrimPiece> trim_from(const std::string& target, std::uint64_t from, std::uint64_t bytes,
                            std::chrono::milliseconds lasts) {
  const auto root = open_mounted_folder(target);
  if (!root) return root.error();
  const auto ends = std::chrono::steady_clock::now() + lasts;
  TrimPiece piece;
  do {
    fstrim_range range{from, bytes, 0};
    if (::ioctl(root->get(), FITRIM, &range) != 0) {
      // The range begins behind the filesystem's end.
      if (errno == EINVAL && from > 0) return TrimPiece{piece.bytes, 0};
      return not_trimmed(target);
    }
    piece.bytes += range.len;
    if (from > kMost - bytes) return TrimPiece{piece.bytes, 0};
    from += bytes;
  } while (std::chrono::steady_clock::now() < ends);
  piece.next = from;
  return piece;
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
