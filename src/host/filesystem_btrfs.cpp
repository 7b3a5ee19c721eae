#include <fcntl.h>
#include <linux/btrfs.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>

#include "corbd/core/fd.hpp"
#include "failure.hpp"
#include "filesystem_types.hpp"
#include "run.hpp"

namespace corbd::host {
namespace {

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

}  // namespace

constinit const FilesystemType kBtrfs{
    .name = "btrfs",
    .package = "btrfs-progs",
    .repair = "btrfs check",
    .inspect = "btrfs check --readonly",
    .mkfs_options = btrfs_options,
    .mkfs = kBtrfsMkfs,
    .device_options = kBtrfsDevices,
    .panic_option = "fatal_errors=panic",
    .inner_option = "subvol",
    .mounts_as_number_of_its_own = true,
    .features = kBtrfsWords,
    .twice =
        "another btrfs with its UUID is mounted on this node, and before Linux 6.7 the kernel "
        "mounts only one: a clone or a restored snapshot has the UUID of its source. Use it on "
        "another node or once the source is unstaged, or give it a UUID of its own (btrfstune -u)",
    .extent = btrfs_extent,
    .grow = btrfs_grow};

}  // namespace corbd::host
