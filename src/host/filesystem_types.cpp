#include "filesystem_types.hpp"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/join.hpp>
#include <cerrno>

#include "corbd/core/fd.hpp"
#include "corbd/core/text.hpp"
#include "failure.hpp"
#include "flags.hpp"
#include "run.hpp"
#include "target.hpp"

namespace corbd::host {
namespace {

// --- ext2, ext3, ext4

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

/// Reads the superblock (Documentation/filesystems/ext4/super.rst). The kernel's own copy of a mounted filesystem lies
/// in the device's page cache.
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
/// then the first mount of it that it finds, which may be a read-only one.
bool ext_grow_by_mount(const std::string& device, const std::string& target) {
  const auto extent = ext_extent(device, target);
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  const auto root = open_mounted_folder(target);
  struct stat below{}, mounted{};
  std::uint64_t bytes = 0;
  if (!extent || !fd || !root || ::fstat(fd.get(), &below) != 0 || ::fstat(root->get(), &mounted) != 0 ||
      below.st_rdev != mounted.st_dev || ::ioctl(fd.get(), BLKGETSIZE64, &bytes) != 0)
    return false;
  std::uint64_t blocks = bytes / extent->block_bytes;
  return ::ioctl(root->get(), _IOW('f', 16, std::uint64_t), &blocks) == 0;
}

constexpr std::size_t kExtSuperblock = 1024;
constexpr std::array kExt4ReadOnlyCompatible{Feature{0x10000, "orphan_present", {5, 15}}};
// Masks of fs/ext4/ext4.h of Linux 5.14: EXT4_FEATURE_INCOMPAT_SUPP and EXT4_FEATURE_RO_COMPAT_SUPP.
constexpr std::array kExt4Words{FeatureWord{kExtSuperblock + 0x60, 4, false, 0x3e7d6, {}},
                                FeatureWord{kExtSuperblock + 0x64, 4, false, 0xb77f, kExt4ReadOnlyCompatible}};

// --- xfs

struct XfsOption {
  const char *flag, *name;
};
// ceph-csi switches reflink off. The other features came after kOldestKernel: nrext64 with Linux 5.19, exchange and
// parent with 6.10, metadir with 6.13. xfsprogs' own lts_5.15.conf would do, but Debian 12's mkfs.xfs refuses its own
// copy.
constexpr std::array kXfsWithout{XfsOption{"-m", "reflink"}, XfsOption{"-m", "metadir"}, XfsOption{"-i", "nrext64"},
                                 XfsOption{"-i", "exchange"}, XfsOption{"-n", "parent"}};

// Reads the usage that mkfs.xfs prints when it fails without arguments, because it refuses options that it does not
// know.
Arguments xfs_options(bool) {
  const auto usage = run({"mkfs.xfs"}, Capture::everything);
  Arguments options{"-K"};
  for (const auto& [flag, name] : kXfsWithout) {
    if (!usage || usage->output.find(std::string(name) + "=0|1") == std::string::npos) continue;
    options.emplace_back(flag);
    options.push_back(std::string(name) + "=0");
  }
  return options;
}

constexpr std::array kXfsParts{VolumesMkfs::Part{"-d", "name"}, VolumesMkfs::Part{"-d", "file"},
                               VolumesMkfs::Part{"-l", "logdev"}, VolumesMkfs::Part{"-l", "name"},
                               VolumesMkfs::Part{"-l", "file"}};
/// Omitted: -c and -p read a file, -r names a device, -N and -V make no filesystem.
constexpr VolumesMkfs kXfsMkfs{.letters = "b:d:fi:Kl:L:m:n:qs:", .refused = kXfsParts};
constexpr std::array<std::string_view, 2> kXfsDevices{"logdev", "rtdev"};

constexpr std::array kXfsIncompatible{Feature{0x20, "nrext64", {5, 19}}, Feature{0x40, "exchange", {6, 10}},
                                      Feature{0x80, "parent", {6, 10}},  Feature{0x100, "metadir", {6, 13}},
                                      Feature{0x200, "zoned", {6, 15}},  Feature{0x400, "zone gaps", {6, 15}}};
// Masks of fs/xfs/libxfs/xfs_format.h of Linux 5.14: XFS_SB_FEAT_RO_COMPAT_ALL and XFS_SB_FEAT_INCOMPAT_ALL.
constexpr std::array kXfsWords{FeatureWord{212, 4, true, 0xf, {}}, FeatureWord{216, 4, true, 0x1f, kXfsIncompatible}};

/// Source: fs/xfs/Kconfig, XFS_SUPPORT_V4. The low bits of sb_versionnum are the version (fs/xfs/libxfs/xfs_format.h).
std::string xfs_outdated(const std::string& device) {
  constexpr std::size_t version = 101;
  constexpr unsigned char version_bits = 0xf, current = 5;
  const Fd fd(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 102> raw{};
  if (!fd || ::pread(fd.get(), raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size()) ||
      !std::string_view(raw.data(), raw.size()).starts_with("XFSB") || (raw[version] & version_bits) >= current)
    return "";
  return "it has the old format V4 (crc=0), which a kernel without CONFIG_XFS_SUPPORT_V4 does not mount. Copy its "
         "files "
         "into a new volume on a node whose kernel has it";
}

/// The first ioctl of this kind in fs/xfs/libxfs/xfs_fs.h, which the kernel does not install.
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

/// A clone of an image has its filesystem's UUID, and xfs mounts each UUID only once.
std::string_view xfs_mount_option(const std::string&) { return "nouuid"; }

Arguments xfs_grow(const std::string&, const std::string& target) { return {"xfs_growfs", "-d", target}; }

// --- btrfs

/// Makes no discard (-K), and omits features that are made by default and came after kOldestKernel: mkfs.btrfs lists
/// since when a kernel has each, "block-group-tree - ... (compat=6.1, safe=6.6, default=6.19)".
Arguments btrfs_options(bool) {
  const auto list = run({"mkfs.btrfs", "-O", "list-all"}, Capture::everything);
  if (!list) return {"-K"};
  std::string without;
  std::string_view rest = list->output;
  constexpr std::string_view since = "(compat=", by_default = "default=", dash = " - ";
  for (auto at = rest.find(since); at != rest.npos; at = rest.find(since)) {
    const auto line = rest.substr(0, at);
    const auto versions = rest.substr(at, rest.find(')', at) - at);
    rest.remove_prefix(at + versions.size());
    const auto name_ends = line.substr(0, line.rfind(dash)).find_last_not_of(' ');
    if (kernel_version(versions.substr(since.size())) <= kOldestKernel || versions.find(by_default) == versions.npos ||
        line.rfind(dash) == line.npos || name_ends == line.npos)
      continue;
    const auto name = line.substr(0, name_ends + 1);
    without += (without.empty() ? "-O^" : ",^") + std::string(name.substr(name.rfind(' ') + 1));
  }
  return without.empty() ? Arguments{"-K"} : Arguments{"-K", without};
}

constexpr std::array<std::string_view, 16> kBtrfsMkfsWords{
    "byte-count:", "checksum:", "csum:",     "data:", "features:",         "force",       "label:", "metadata:",
    "mixed",       "nodesize:", "nodiscard", "quiet", "runtime-features:", "sectorsize:", "uuid:",  "verbose"};
/// Omitted: -r (--rootdir) copies a folder.
constexpr VolumesMkfs kBtrfsMkfs{.letters = "b:d:fKL:m:Mn:O:qR:s:U:v", .words = kBtrfsMkfsWords};
constexpr std::array<std::string_view, 1> kBtrfsDevices{"device"};

constexpr std::size_t kBtrfsSuperblock = 65536;
constexpr std::array kBtrfsReadOnlyCompatible{Feature{0x4, "verity", {5, 15}},
                                              Feature{0x8, "block-group-tree", {6, 1}}};
constexpr std::array kBtrfsIncompatible{Feature{0x4000, "raid-stripe-tree", {6, 7}},
                                        Feature{0x10000, "squota", {6, 7}}};
// Masks of fs/btrfs/ctree.h of Linux 5.14: BTRFS_FEATURE_COMPAT_RO_SUPP and BTRFS_FEATURE_INCOMPAT_SUPP.
constexpr std::array kBtrfsWords{FeatureWord{kBtrfsSuperblock + 0xb4, 8, false, 0x3, kBtrfsReadOnlyCompatible},
                                 FeatureWord{kBtrfsSuperblock + 0xbc, 8, false, 0x1fff, kBtrfsIncompatible}};

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
                   .repair = "e2fsck -f",
                   .mkfs_options = ext4_options,
                   .mkfs = kExtMkfs,
                   .encryption_option = "-Oencrypt",
                   .mount_option = ext_mount_option,
                   .device_options = kExtDevices,
                   .panic_option = kExtPanic,
                   .without_journal = "noload",
                   .features = kExt4Words,
                   .has_errors = ext_has_errors,
                   .extent = ext_extent,
                   .grow = ext_grow,
                   .grow_by_mount = ext_grow_by_mount},
    FilesystemType{.name = "xfs",
                   .package = "xfsprogs",
                   .repair = "xfs_repair",
                   .mkfs_options = xfs_options,
                   .mkfs = kXfsMkfs,
                   .mount_option = xfs_mount_option,
                   .device_options = kXfsDevices,
                   .without_journal = "norecovery",
                   .features = kXfsWords,
                   .outdated = xfs_outdated,
                   .extent = xfs_extent,
                   .grow = xfs_grow},
    FilesystemType{.name = "ext3",
                   .package = "e2fsprogs",
                   .repair = "e2fsck -f",
                   .mkfs_options = ext_options,
                   .mkfs = kExtMkfs,
                   .mount_option = ext_mount_option,
                   .device_options = kExtDevices,
                   .panic_option = kExtPanic,
                   .without_journal = "noload",
                   .has_errors = ext_has_errors,
                   .extent = ext_extent,
                   .grow = ext_grow,
                   .grow_by_mount = ext_grow_by_mount},
    FilesystemType{.name = "btrfs",
                   .package = "btrfs-progs",
                   .repair = "btrfs check",
                   .mkfs_options = btrfs_options,
                   .mkfs = kBtrfsMkfs,
                   .device_options = kBtrfsDevices,
                   .panic_option = "fatal_errors=panic",
                   .inner_option = "subvol",
                   .mounts_as_number_of_its_own = true,
                   .features = kBtrfsWords,
                   .twice = "another btrfs with its UUID is mounted on this node, and before Linux 6.7 the kernel "
                            "mounts only one: a clone or a restored snapshot has the UUID of its source. Use it on "
                            "another node or once the source is unstaged, or give it a UUID of its own (btrfstune -u)",
                   .extent = btrfs_extent,
                   .grow = btrfs_grow},
    FilesystemType{.name = "ext2",
                   .offered = false,
                   .package = "e2fsprogs",
                   .repair = "e2fsck -f",
                   .mkfs_options = ext_options,
                   .mkfs = kExtMkfs,
                   .mount_option = ext_mount_option,
                   .device_options = kExtDevices,
                   .panic_option = kExtPanic,
                   .has_errors = ext_has_errors,
                   .extent = ext_extent,
                   .grow = ext_grow,
                   .grow_by_mount = ext_grow_by_mount},
};

}  // namespace

const FilesystemType* filesystem_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &FilesystemType::name);
  return found == kTypes.end() ? nullptr : found;
}

std::optional<Error> mount_refusal(std::string_view fstype, const std::string& device, int error) {
  const auto* type = filesystem_type(fstype);
  if (error != EEXIST || type == nullptr || type->twice.empty()) return std::nullopt;
  return Error{errc::failed_precondition, "mounting " + device + ": " + std::string(type->twice)};
}

namespace {

bool names_device(const MountOption& option) {
  const auto is_named = [&](const FilesystemType& type) {
    return std::ranges::find(type.device_options, option.key) != type.device_options.end();
  };
  const auto is_inner = [&](const FilesystemType& type) { return type.inner_option == option.key; };
  const bool path = option.value && option.value->find('/') != std::string::npos;
  return std::ranges::any_of(kTypes, is_named) || (path && std::ranges::none_of(kTypes, is_inner));
}

}  // namespace

result<> check_mount_options(const std::string& flags) {
  const auto parsed = parse_flags(flags);
  if (!parsed) return parsed.error();
  for (const auto& option : parsed->filesystem) {
    const std::string text = option.key + (option.value ? "=" + *option.value : "");
    if (names_device(option))
      return Error{errc::invalid_argument,
                   "mount option " + printable(text) + " names another file or device of the node: leave it out"};
    if (std::ranges::find(kTypes, text, &FilesystemType::panic_option) != kTypes.end())
      return Error{errc::invalid_argument,
                   "mount option " + text + " would stop the whole node at an error of this volume: leave it out"};
  }
  return {};
}

std::string way_to_repair(std::string_view fstype) {
  const auto* type = filesystem_type(fstype);
  const std::string how =
      type == nullptr ? "repair it by hand" : "run `" + std::string(type->repair) + "` on the image";
  return how + " (docs/runbook.md#a-damaged-filesystem)";
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
