// ext2, ext3 and ext4.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "corbd/core/fd.hpp"
#include "failure.hpp"
#include "filesystem_types.hpp"
#include "run.hpp"
#include "target.hpp"

namespace corbd::host {
namespace {

// Whether mke2fs knows the option: an old one says "Bad option(s) specified". A helper tries it once, on a file in
// memory that the child inherits by number.
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

// Features that Debian 12 makes. Newer releases add orphan_file (Linux 5.15) and metadata_csum_seed, which older
// checkers refuse. "none" comes first, so a release's own defaults stay out.
constexpr const char* kExt4Features =
    "-Onone,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_"
    "file,"
    "dir_nlink,extra_isize,metadata_csum";

// Nothing is discarded, because the image is empty. A new mke2fs does not write zeroes where zeroes are. A LUKS mapping
// does not read as zeroes where nothing was written, and neither do the remains of an interrupted format. There ext4
// writes its inode tables after the mount.
Arguments ext4_options(bool zeroes) {
  if (zeroes && mke2fs_knows_prezeroed()) return {"-m0", "-Enodiscard,assume_storage_prezeroed=1", kExt4Features};
  return {"-m0", "-Enodiscard,lazy_itable_init=1,lazy_journal_init=1", kExt4Features};
}

// Nothing is discarded, as with ext4.
Arguments ext_options(bool) { return {"-m0", "-Enodiscard"}; }

constexpr std::array kExtParts{VolumesMkfs::Part{"-J", "device"}, VolumesMkfs::Part{"-e", "panic"}};
/// Omitted: -d copies a folder, -l and -z name a file, -c runs for hours, -n, -S and -V make no filesystem.
constexpr VolumesMkfs kExtMkfs{.letters = "b:e:g:i:jm:o:qr:t:vC:DE:FG:I:J:KL:N:O:R:T:U:", .refused = kExtParts};

/// Overrides s_errors of the superblock, whose 3 is EXT4_ERRORS_PANIC: anybody who writes the image can set it.
std::string_view ext_mount_option(const std::string& device) {
  constexpr off_t errors = 1024 + 0x3c;
  constexpr std::array<unsigned char, 2> panic{3, 0};
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<unsigned char, 2> wanted{};
  const bool read = fd && ::pread(fd.get(), wanted.data(), wanted.size(), errors) == ssize_t{wanted.size()};
  return read && wanted == panic ? "errors=remount-ro" : "";
}
constexpr std::array<std::string_view, 2> kExtDevices{"journal_dev", "journal_path"};
constexpr const char* kExtPanic = "errors=panic";

std::uint32_t little_endian(const unsigned char* at) {
  return std::uint32_t{at[0]} | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 | std::uint32_t{at[3]} << 24;
}

struct Superblock {
  std::uint64_t blocks = 0;
  std::uint32_t block_bytes = 0;
  bool is_64bit = false;
};

/// Reads the superblock (Documentation/filesystems/ext4/super.rst). The kernel's own copy of a mounted filesystem lies
/// in the device's page cache.
result<Superblock> read_superblock(const std::string& device) {
  constexpr off_t place = 1024;
  constexpr std::size_t blocks_low = 0x4, log_block = 0x18, magic = 0x38, incompatible = 0x60, blocks_high = 0x150;
  constexpr std::uint32_t feature_64bit = 0x80, largest_log_block = 6;
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failure("opening " + device, errno);
  std::array<unsigned char, 1024> raw{};
  const ssize_t got = ::pread(fd.get(), raw.data(), raw.size(), place);
  if (got != static_cast<ssize_t>(raw.size()))
    return failure("reading the superblock of " + device, got < 0 ? errno : EIO);
  const std::uint32_t log = little_endian(raw.data() + log_block);
  if (raw[magic] != 0x53 || raw[magic + 1] != 0xef || log > largest_log_block)
    return Error{errc::failed_precondition, device + " has no ext superblock"};
  Superblock super{little_endian(raw.data() + blocks_low), std::uint32_t{1024} << log,
                   (little_endian(raw.data() + incompatible) & feature_64bit) != 0};
  if (super.is_64bit) super.blocks |= std::uint64_t{little_endian(raw.data() + blocks_high)} << 32;
  return super;
}

result<Extent> ext_extent(const std::string& device, const std::string&) {
  const auto super = read_superblock(device);
  if (!super) return super.error();
  return Extent{super->blocks * super->block_bytes, super->block_bytes};
}

/// Reads s_state of the superblock: EXT4_ERROR_FS. The kernel does not grow a filesystem that has errors.
bool ext_has_errors(const std::string& device) {
  constexpr off_t state = 1024 + 0x3a;
  constexpr unsigned char error = 0x2;
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  unsigned char low = 0;
  return fd && ::pread(fd.get(), &low, 1, state) == 1 && (low & error) != 0;
}

Arguments ext_grow(const std::string& device, const std::string&) { return {"resize2fs", device}; }

/// Calls EXT4_IOC_RESIZE_FS (fs/ext4/ext4.h) on the mount, as resize2fs does. resize2fs itself opens the device, and
/// then the first mount of it that it finds, which may be a read-only one. It goes on by older calls, or has words of
/// its own, where the kernel does not know the call or does not serve this filesystem by it (resize/online.c). Any
/// other error is final for it too.
std::optional<result<>> ext_grow_by_mount(const std::string& device, const std::string& target) {
  const auto super = read_superblock(device);
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  const auto root = open_mounted_folder(target);
  struct stat below{}, mounted{};
  std::uint64_t bytes = 0;
  if (!super || !fd || !root || ::fstat(fd.get(), &below) != 0 || ::fstat(root->get(), &mounted) != 0 ||
      below.st_rdev != mounted.st_dev || ::ioctl(fd.get(), BLKGETSIZE64, &bytes) != 0)
    return std::nullopt;
  auto blocks =
      resize2fs_blocks(bytes, super->block_bytes, static_cast<std::uint32_t>(::sysconf(_SC_PAGESIZE)), super->is_64bit);
  if (!blocks) return std::nullopt;
  if (*blocks <= super->blocks) return result<>();
  if (::ioctl(root->get(), _IOW('f', 16, std::uint64_t), &*blocks) == 0) return result<>();
  if (errno == ENOTTY || errno == EOPNOTSUPP || errno == EINVAL) return std::nullopt;
  return failure("growing the filesystem of " + device + " at " + target + " to " + std::to_string(*blocks) + " blocks",
                 errno);
}

constexpr std::size_t kExtSuperblock = 1024;
constexpr std::array kExt4ReadOnlyCompatible{Feature{0x10000, "orphan_present", {5, 15}}};
// Masks of fs/ext4/ext4.h of Linux 5.14: EXT4_FEATURE_INCOMPAT_SUPP and EXT4_FEATURE_RO_COMPAT_SUPP.
constexpr std::array kExt4Words{FeatureWord{kExtSuperblock + 0x60, 4, false, 0x3e7d6, {}},
                                FeatureWord{kExtSuperblock + 0x64, 4, false, 0xb77f, kExt4ReadOnlyCompatible}};

constexpr FilesystemType kOldest{.name = "ext2",
                                 .offered = false,
                                 .package = "e2fsprogs",
                                 .repair = "e2fsck -f",
                                 .check = "-n",
                                 .replay = "-p -Ejournal_only",
                                 .inspect = "e2fsck -f -n",
                                 .mend = "e2fsck -f -y",
                                 .mended = 1 | 2,
                                 .mkfs_options = ext_options,
                                 .mkfs = kExtMkfs,
                                 .mount_option = ext_mount_option,
                                 .device_options = kExtDevices,
                                 .panic_option = kExtPanic,
                                 .trims_in_pieces = true,
                                 .has_errors = ext_has_errors,
                                 .extent = ext_extent,
                                 .grow = ext_grow,
                                 .grow_by_mount = ext_grow_by_mount};

constexpr FilesystemType with_journal(FilesystemType type) {
  type.name = "ext3";
  type.offered = true;
  type.without_journal = "noload";
  return type;
}

constexpr FilesystemType with_newer_features(FilesystemType type) {
  type.name = "ext4";
  type.mkfs_options = ext4_options;
  type.encryption_option = "-Oencrypt";
  type.features = kExt4Words;
  return type;
}

}  // namespace

std::optional<std::uint64_t> resize2fs_blocks(std::uint64_t bytes, std::uint32_t block, std::uint32_t page,
                                              bool is_64bit) {
  constexpr std::uint64_t beyond_32 = std::uint64_t{1} << 32;
  std::uint64_t blocks = bytes / block;
  if (page > block) blocks -= blocks % (page / block);
  if (is_64bit || blocks < beyond_32) return blocks;
  return blocks == beyond_32 ? std::optional(beyond_32 - 1) : std::nullopt;
}

constinit const FilesystemType kExt2 = kOldest;
constinit const FilesystemType kExt3 = with_journal(kOldest);
constinit const FilesystemType kExt4 = with_newer_features(with_journal(kOldest));

}  // namespace corbd::host
