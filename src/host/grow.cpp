// ops::extent and ops::grow: tell how large a mounted filesystem is, and make it as large as its device.
#include <fcntl.h>
#include <linux/btrfs.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>

#include "corbd/core/fd.hpp"
#include "failure.hpp"
#include "ops.hpp"
#include "run.hpp"

namespace corbd::host::ops {
namespace {

bool is_ext(const std::string& fstype) { return fstype == "ext2" || fstype == "ext3" || fstype == "ext4"; }

Error not_known(const std::string& fstype) {
  return {errc::unimplemented,
          "cannot grow a filesystem of type " + fstype + ": only ext2, ext3, ext4, xfs and btrfs can grow"};
}

std::uint32_t little_endian(const unsigned char* at) {
  return std::uint32_t{at[0]} | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 | std::uint32_t{at[3]} << 24;
}

/// The superblock (Documentation/filesystems/ext4/super.rst). The kernel's own copy of a mounted filesystem lies in the
/// device's page cache.
result<Extent> ext_extent(const std::string& device) {
  constexpr off_t place = 1024;
  constexpr std::size_t blocks_low = 0x4, log_block = 0x18, magic = 0x38, incompatible = 0x60, blocks_high = 0x150;
  constexpr std::uint32_t is_64bit = 0x80, largest_log_block = 6;
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failure("opening " + device, errno);
  std::array<unsigned char, 1024> raw{};
  const ssize_t got = ::pread(fd.get(), raw.data(), raw.size(), place);
  if (got != static_cast<ssize_t>(raw.size()))
    return failure("reading the superblock of " + device, got < 0 ? errno : EIO);
  const std::uint32_t log = little_endian(raw.data() + log_block);
  if (raw[magic] != 0x53 || raw[magic + 1] != 0xef || log > largest_log_block)
    return Error{errc::failed_precondition, device + " has no ext superblock"};
  std::uint64_t blocks = little_endian(raw.data() + blocks_low);
  if ((little_endian(raw.data() + incompatible) & is_64bit) != 0)
    blocks |= std::uint64_t{little_endian(raw.data() + blocks_high)} << 32;
  const std::uint32_t block = std::uint32_t{1024} << log;
  return Extent{blocks * block, block};
}

/// fs/xfs/libxfs/xfs_fs.h, which the kernel does not install: its first ioctl of this kind.
struct XfsGeometry {
  std::uint32_t blocksize, rtextsize, agblocks, agcount, logblocks, sectsize, inodesize, imaxpct;
  std::uint64_t datablocks, rtblocks, rtextents, logstart;
  std::array<unsigned char, 16> uuid;
  std::uint32_t sunit, swidth;
  std::int32_t version;
  std::uint32_t flags, logsectsize, rtsectsize, dirblocksize;
};

result<Extent> xfs_extent(int mounted, const std::string& target) {
  XfsGeometry geometry{};
  if (::ioctl(mounted, _IOR('X', 100, XfsGeometry), &geometry) != 0)
    return failure("reading the size of the xfs at " + target, errno);
  return Extent{geometry.datablocks * geometry.blocksize, geometry.blocksize};
}

result<Extent> btrfs_extent(int mounted, const std::string& target) {
  btrfs_ioctl_dev_info_args device{};
  device.devid = 1;
  if (::ioctl(mounted, BTRFS_IOC_DEV_INFO, &device) != 0)
    return failure("reading the size of the btrfs at " + target, errno);
  btrfs_ioctl_fs_info_args filesystem{};
  if (::ioctl(mounted, BTRFS_IOC_FS_INFO, &filesystem) != 0)
    return failure("reading the size of the btrfs at " + target, errno);
  return Extent{device.total_bytes, filesystem.sectorsize};
}

}  // namespace

result<Extent> extent(const std::string& device, const std::string& fstype, const std::string& target) {
  if (is_ext(fstype)) return ext_extent(device);
  if (fstype != "xfs" && fstype != "btrfs") return not_known(fstype);
  const Fd mounted(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!mounted) return failure("opening " + target, errno);
  return fstype == "xfs" ? xfs_extent(mounted.get(), target) : btrfs_extent(mounted.get(), target);
}

result<> grow(const std::string& device, const std::string& fstype, const std::string& target) {
  std::vector<std::string> argv;
  if (is_ext(fstype)) argv = {"resize2fs", device};
  if (fstype == "xfs") argv = {"xfs_growfs", "-d", target};
  if (fstype == "btrfs") argv = {"btrfs", "filesystem", "resize", "max", target};
  if (argv.empty()) return not_known(fstype);
  const auto ended = run(argv, Capture::everything);
  if (!ended && ended.error().code == errc::not_found) return Error{errc::failed_precondition, ended.error().text};
  if (!ended) return ended.error();
  if (ended->code == 0) return {};
  const errc code = ended->signal != 0 ? errc::unavailable : errc::failed_precondition;
  return Error{code, "growing the filesystem of " + device + " at " + target + " with " + argv.front() + ": " +
                         host::describe(*ended)};
}

}  // namespace corbd::host::ops
