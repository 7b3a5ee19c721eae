#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "corbd/core/fd.hpp"
#include "failure.hpp"
#include "filesystem_types.hpp"
#include "run.hpp"

namespace corbd::host {
namespace {

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

}  // namespace

constinit const FilesystemType kXfs{.name = "xfs",
                                    .package = "xfsprogs",
                                    .repair = "xfs_repair",
                                    .inspect = "xfs_repair -n",
                                    .mend = "xfs_repair",
                                    .mkfs_options = xfs_options,
                                    .mkfs = kXfsMkfs,
                                    .mount_option = xfs_mount_option,
                                    .device_options = kXfsDevices,
                                    .without_journal = "norecovery",
                                    .trims_in_pieces = true,
                                    .features = kXfsWords,
                                    .outdated = xfs_outdated,
                                    .extent = xfs_extent,
                                    .grow = xfs_grow};

}  // namespace corbd::host
