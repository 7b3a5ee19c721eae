#include "filesystem_types.hpp"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/join.hpp>
#include <cerrno>

#include "corbd/core/fd.hpp"
#include "corbd/core/text.hpp"
#include "failure.hpp"
#include "run.hpp"

namespace corbd::host {
namespace {

// --- ext2, ext3, ext4

// An old mke2fs says "Bad option(s) specified". A helper tries it once, on a file in memory that the child inherits by
// number.
bool mke2fs_knows_prezeroed() {
  static const bool known = [] {
    const Fd file(::memfd_create("mke2fs", 0));
    constexpr off_t size = 4 * 1024 * 1024;
    if (!file || ::ftruncate(file.get(), size) != 0) return false;
    const std::string path = "/proc/self/fd/" + std::to_string(file.get());
    const auto tried = run({"mkfs.ext4", "-n", "-Eassume_storage_prezeroed=1", path}, Capture::errors);
    return tried && tried->code == 0 && tried->output.find("Bad option(s) specified") == std::string::npos;
  }();
  return known;
}

// Nothing is discarded: the image is empty. A new mke2fs does not write zeros where zeros are. A LUKS mapping does not
// read as zeros where nothing was written, nor does what an interrupted format left. There ext4 writes its inode tables
// after the mount.
Arguments ext4_options(bool zeroes) {
  if (zeroes && mke2fs_knows_prezeroed()) return {"-m0", "-Enodiscard,assume_storage_prezeroed=1"};
  return {"-m0", "-Enodiscard,lazy_itable_init=1,lazy_journal_init=1"};
}

Arguments ext_options(bool) { return {"-m0"}; }

std::uint32_t little_endian(const unsigned char* at) {
  return std::uint32_t{at[0]} | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 | std::uint32_t{at[3]} << 24;
}

/// The superblock (Documentation/filesystems/ext4/super.rst). The kernel's own copy of a mounted filesystem lies in the
/// device's page cache.
result<Extent> ext_extent(const std::string& device, const std::string&) {
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

Arguments ext_grow(const std::string& device, const std::string&) { return {"resize2fs", device}; }

// --- xfs

// Without arguments mkfs.xfs prints its usage and fails.
bool mkfs_xfs_knows_reflink() {
  static const bool known = [] {
    const auto usage = run({"mkfs.xfs"}, Capture::everything);
    return usage && usage->output.find("reflink=0|1") != std::string::npos;
  }();
  return known;
}

Arguments xfs_options(bool) {
  if (mkfs_xfs_knows_reflink()) return {"-K", "-m", "reflink=0"};
  return {"-K"};
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

result<Extent> xfs_extent(const std::string&, const std::string& target) {
  const Fd mounted(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!mounted) return failure("opening " + target, errno);
  XfsGeometry geometry{};
  if (::ioctl(mounted.get(), _IOR('X', 100, XfsGeometry), &geometry) != 0)
    return failure("reading the size of the xfs at " + target, errno);
  return Extent{geometry.datablocks * geometry.blocksize, geometry.blocksize};
}

Arguments xfs_grow(const std::string&, const std::string& target) { return {"xfs_growfs", "-d", target}; }

// --- btrfs

Arguments btrfs_options(bool) { return {}; }

result<Extent> btrfs_extent(const std::string&, const std::string& target) {
  const Fd mounted(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!mounted) return failure("opening " + target, errno);
  btrfs_ioctl_dev_info_args device{};
  device.devid = 1;
  if (::ioctl(mounted.get(), BTRFS_IOC_DEV_INFO, &device) != 0)
    return failure("reading the size of the btrfs at " + target, errno);
  btrfs_ioctl_fs_info_args filesystem{};
  if (::ioctl(mounted.get(), BTRFS_IOC_FS_INFO, &filesystem) != 0)
    return failure("reading the size of the btrfs at " + target, errno);
  return Extent{device.total_bytes, filesystem.sectorsize};
}

Arguments btrfs_grow(const std::string&, const std::string& target) {
  return {"btrfs", "filesystem", "resize", "max", target};
}

// --- the table

constexpr std::array kTypes{
    FilesystemType{.name = "ext4",
                   .package = "e2fsprogs",
                   .mkfs_options = ext4_options,
                   .encryption_option = "-Oencrypt",
                   .extent = ext_extent,
                   .grow = ext_grow},
    // A clone of an image has its filesystem's UUID, and xfs mounts each UUID only once.
    FilesystemType{.name = "xfs",
                   .package = "xfsprogs",
                   .mkfs_options = xfs_options,
                   .mount_option = "nouuid",
                   .extent = xfs_extent,
                   .grow = xfs_grow},
    FilesystemType{
        .name = "ext3", .package = "e2fsprogs", .mkfs_options = ext_options, .extent = ext_extent, .grow = ext_grow},
    FilesystemType{.name = "btrfs",
                   .package = "btrfs-progs",
                   .mkfs_options = btrfs_options,
                   .extent = btrfs_extent,
                   .grow = btrfs_grow},
    FilesystemType{.name = "ext2",
                   .offered = false,
                   .package = "e2fsprogs",
                   .mkfs_options = ext_options,
                   .extent = ext_extent,
                   .grow = ext_grow},
};

}  // namespace

const FilesystemType* filesystem_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &FilesystemType::name);
  return found == kTypes.end() ? nullptr : found;
}

std::string known_filesystems() {
  std::string text;
  for (const auto& type : kTypes) text += (text.empty() ? "" : ", ") + std::string(type.name);
  return text;
}

bool encrypts_files(std::string_view fstype) {
  const auto* type = filesystem_type(fstype);
  return type != nullptr && !type->encryption_option.empty();
}

std::string encrypting_filesystems() {
  std::string text;
  for (const auto& type : kTypes)
    if (!type.encryption_option.empty()) text += (text.empty() ? "" : " or ") + std::string(type.name);
  return text;
}

result<std::map<std::string, std::string>> options_by_type(std::string_view text) {
  std::map<std::string, std::string> by_type;
  const auto offered = offered_filesystems();
  for (const auto part : pieces(text, ';')) {
    if (part.empty()) continue;
    const auto colon = part.find(':');
    const std::string type(part.substr(0, colon));
    if (std::ranges::find(offered, type) == offered.end())
      return Error{errc::invalid_argument, "filesystem type '" + printable(type) + "' is not supported: use one of " +
                                               boost::algorithm::join(offered, ", ")};
    if (colon == part.npos || colon + 1 == part.size())
      return Error{errc::invalid_argument, type + " has no options: write " + type + ":OPTIONS"};
    by_type[type] = part.substr(colon + 1);
  }
  return by_type;
}

std::vector<std::string> offered_filesystems() {
  std::vector<std::string> names;
  for (const auto& type : kTypes)
    if (type.offered) names.emplace_back(type.name);
  return names;
}

}  // namespace corbd::host
