// Ports to this node's mounts and filesystems. Everything that may wait for a device runs in a helper process; only
// mountinfo, which cannot hang, is read here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/helper_owner.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"

namespace corbd::host {

/// Where a mount is made: in the filesystem below it, by whatever path that is seen.
struct Place {
  std::uint32_t dev_major = 0, dev_minor = 0;
  std::string path;                      ///< within that filesystem; empty: not known
  std::uint64_t shared = 0, master = 0;  ///< peer groups of the mount below, which propagate; 0: none
};

/// One line of /proc/self/mountinfo.
struct Mount {
  std::uint64_t id = 0;
  std::uint32_t dev_major = 0, dev_minor = 0;  ///< of the filesystem; for a bind of a device node: of devtmpfs
  std::string root;  ///< within the filesystem: "/", or "/nbd0" for a bind of a device node from devtmpfs
  std::string target;
  std::string fstype;
  std::string source;
  std::string options;                ///< per mount, comma separated
  bool read_only = false;             ///< this mount's own flag
  bool filesystem_read_only = false;  ///< the superblock's: also of one that stopped writing after an error
  Place place = {};
};

/// Whether `twin` is the same mount seen by another path, so that the kernel takes it away with `of`: both stand at one
/// place, and the mounts below them propagate. A bind of it elsewhere, as a pod has it, is none.
bool goes_with(const Mount& twin, const Mount& of);

/// What blkid says of a device. ambivalent: two signatures at once: never formatted, never mounted.
struct Probe {
  enum class Kind { nothing, filesystem, partitions, other, ambivalent } kind = Kind::ambivalent;
  std::string type;  ///< "ext4"
};

/// How large a mounted filesystem is.
struct Extent {
  std::uint64_t bytes = 0;
  std::uint32_t block_bytes = 0;
};

/// Whether the device has room for another block of the filesystem.
constexpr bool has_room(const Extent& filesystem, std::uint64_t device_bytes) {
  return device_bytes > filesystem.bytes + filesystem.block_bytes;
}

/// statvfs(3) of a filesystem. Available: to an unprivileged user.
struct Usage {
  std::uint64_t bytes = 0, bytes_used = 0, bytes_available = 0;
  std::uint64_t inodes = 0, inodes_used = 0, inodes_available = 0;  ///< 0: the filesystem does not count them
};

class Mounts {
 public:
  virtual ~Mounts() = default;
  virtual result<std::vector<Mount>> table() const = 0;
  /// Mounts a filesystem at `target` (made if absent: 0750). `flags`: mount(8) names, comma separated
  /// ("nodev,noatime").
  virtual task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags,
                               HelperOwner owner, Until until) = 0;
  /// Binds `source` on `target` (made if absent: folder 0750, or file 0600 when `device_node`), with `flags` such as
  /// "ro" set on the bind.
  virtual task<result<>> bind(std::string source, std::string target, bool device_node, std::string flags,
                              HelperOwner owner, Until until) = 0;
  /// syncfs (with `sync`: it waits for the device), umount, remove the empty target. in_use when busy. Done too when
  /// nothing is mounted: then only the target goes, if empty; failed_precondition when it holds something.
  virtual task<result<>> unmount(std::string target, bool sync, HelperOwner owner, Until until) = 0;
  /// Discards what the filesystem there does not use (fstrim); bytes. unimplemented where filesystem or device cannot.
  virtual task<result<std::uint64_t>> trim(std::string target, HelperOwner owner, Until until) = 0;
  /// As long as an earlier call for the same target hangs: unavailable at once.
  virtual task<result<Usage>> usage(std::string target, Until until) = 0;
};

class Filesystems {
 public:
  virtual ~Filesystems() = default;
  virtual task<result<Probe>> probe(std::string device, HelperOwner owner, Until until) = 0;
  /// options empty: ceph-csi's defaults of that type. `zeroes`: what was never written reads as zeros. Fails with
  /// not_empty if blkid finds anything, in the same helper call.
  virtual task<result<>> mkfs(std::string device, std::string fstype, std::string options, bool zeroes,
                              HelperOwner owner, Until until) = 0;
  /// fsck.<fstype> -a; 0 and 1 are success.
  virtual task<result<>> fsck(std::string device, std::string fstype, HelperOwner owner, Until until) = 0;
  /// Of ext2, ext3, ext4, xfs or btrfs, mounted at `target`; unimplemented for others.
  virtual task<result<Extent>> extent(std::string device, std::string fstype, std::string target, HelperOwner owner,
                                      Until until) = 0;
  /// Makes the same, mounted writable, as large as its device: resize2fs, xfs_growfs, btrfs. Done too when it is.
  virtual task<result<>> grow(std::string device, std::string fstype, std::string target, HelperOwner owner,
                              Until until) = 0;
  /// Opens with O_EXCL and closes again: in_use when anyone (also in another mount namespace) has it mounted or
  /// claimed.
  virtual task<result<>> check_unused(std::string device, HelperOwner owner, Until until) = 0;
  /// Writes the queue attributes that differ: io_timeout 1000 ms, max_sectors_kb 1024, scheduler none. Right after
  /// connect only.
  virtual task<result<>> tune(std::string kernel_name, HelperOwner owner, Until until) = 0;
};

/// Whether a helper of an earlier incarnation still holds the busy file. Cannot hang.
bool busy(const std::string& busy_file);

/// Without what a path may have too much: "//", "/./", a "/" at its end. ".." stays.
std::string plain_path(const std::string& path);
/// The same of a path below `root`, whose own name has no link in it any more: `real_root`.
std::string real_path(const std::string& path, const std::string& root, const std::string& real_root);

/// Resolves `path` below `root` without following a link (openat2 RESOLVE_BENEATH|NO_SYMLINKS|NO_MAGICLINKS):
/// invalid_argument when it leaves the root or meets a symlink. `must_exist`: not_found otherwise; the last component
/// may be missing without it, the folder around it may not.
result<> check_path(const std::string& root, const std::string& path, bool must_exist);

}  // namespace corbd::host
