// Ports to this node's mounts and filesystems. Calls that may wait for a device run in a helper process; only
// mountinfo, which cannot hang, is read here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/fields.hpp"
#include "corbd/core/helper_owner.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/host/mount_list.hpp"
#include "corbd/host/values.hpp"

namespace corbd::host {

/// All mounts at one moment. Never null. It is shared, because each volume of a node looks at the mounts of the node.
using MountTable = std::shared_ptr<const MountList>;

/// A part of a filesystem whose free space was discarded.
struct TrimPiece {
  std::uint64_t bytes = 0;  ///< discarded
  std::uint64_t next = 0;   ///< where the next piece begins, in bytes of the filesystem; 0: this was the last one
  static constexpr std::tuple fields{fields::required("bytes", &TrimPiece::bytes),
                                     fields::required("next", &TrimPiece::next)};
};

/// The port to this node's mounts. Calls with a HelperOwner run in a helper process. Control thread.
class Mounts {
 public:
  virtual ~Mounts() = default;
  virtual result<MountTable> table() const = 0;
  /// Mounts a filesystem at `target` (made if absent: 0750). `flags`: mount(8) names, comma separated
  /// ("nodev,noatime").
  virtual task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags,
                               HelperOwner owner, Until until) = 0;
  /// Binds `source` on `target` (made if absent: folder 0750, or file 0600 when `device_node`), with `flags` such as
  /// "ro" set on the bind.
  virtual task<result<>> bind(std::string source, std::string target, bool device_node, std::string flags,
                              HelperOwner owner, Until until) = 0;
  /// Writes a line of io.max into the cgroup (v2) of that pod below /sys/fs/cgroup. not_found: kubelet has not made it
  /// yet. failed_precondition: there are no cgroups of pods. unimplemented: cgroup v1.
  virtual task<result<>> limit_io(std::string pod_uid, std::string line, HelperOwner owner, Until until) = 0;
  /// Runs syncfs (if `sync`; this waits for the device), unmounts, and removes the empty target. in_use when busy. If
  /// nothing is mounted, it only removes the target. failed_precondition when the target holds something.
  virtual task<result<>> unmount(std::string target, bool sync, HelperOwner owner, Until until) = 0;
  /// Discards unused space of the filesystem there (fstrim) and returns the bytes. unimplemented if the filesystem or
  /// the device cannot.
  virtual task<result<std::uint64_t>> trim(std::string target, HelperOwner owner, Until until) = 0;
  /// Writes everything of the filesystem there, then freezes it (FIFREEZE): writers wait until thaw(). Returns ""; or
  /// why the kernel did not freeze it, for example because somebody else already has. After an error nobody knows
  /// whether it is frozen, or will be.
  virtual task<result<std::string>> freeze(std::string target, HelperOwner owner, Until until) = 0;
  /// Thaws it (FITHAW), whoever froze it. False: it was not frozen.
  virtual task<result<bool>> thaw(std::string target, HelperOwner owner, Until until) = 0;
  /// Does that for about half a second, from there on. Only for types of trims_in_pieces().
  virtual task<result<TrimPiece>> trim_from(std::string target, std::uint64_t from, HelperOwner owner, Until until) = 0;
  /// Returns unavailable at once while an earlier call for the same target hangs.
  virtual task<result<Usage>> usage(std::string target, Until until) = 0;
};

/// The port to the filesystems on this node's devices, in helper processes. Control thread.
class Filesystems {
 public:
  virtual ~Filesystems() = default;
  virtual task<result<Probe>> probe(std::string device, HelperOwner owner, Until until) = 0;
  /// Empty options mean ceph-csi's defaults for that type. Fails with not_empty if blkid finds anything; that check is
  /// in the same helper call. Returns the features of the new filesystem that the oldest kernel of docs/serving.md does
  /// not know: "parent (Linux 6.10)", usually none. The mount shows whether this node's kernel knows them.
  virtual task<result<std::string>> mkfs(std::string device, std::string fstype, std::string options, MkfsFor made_for,
                                         HelperOwner owner, Until until) = 0;
  /// Runs fsck.<fstype>. Empty options mean -a. Exit codes 0 and 1 are success.
  virtual task<result<>> fsck(std::string device, std::string fstype, std::string options, HelperOwner owner,
                              Until until) = 0;
  /// Looks for damage and repairs nothing. Empty: it found none. Otherwise the checker's words. A journal with changes
  /// is replayed first, as a mount would do, unless the filesystem is marked as damaged. xfs and btrfs have no such
  /// check. failed_precondition: the checker is missing, or could not work.
  virtual task<result<std::string>> check(std::string device, std::string fstype, HelperOwner owner, Until until) = 0;
  /// Runs the checker that an operator would run by hand. Without `repair` it changes nothing, also not the journal.
  /// unimplemented: there is none that does that. failed_precondition: the checker is missing.
  virtual task<result<Inspection>> inspect(std::string, std::string fstype, bool /*repair*/, HelperOwner, Until) {
    co_return Error{errc::unimplemented, "nothing inspects an " + fstype};
  }
  /// Returns the size of an ext2, ext3, ext4, xfs or btrfs that is mounted at `target`; unimplemented for others.
  virtual task<result<Extent>> extent(std::string device, std::string fstype, std::string target, HelperOwner owner,
                                      Until until) = 0;
  /// Makes such a filesystem, mounted writable, as large as its device: resize2fs, xfs_growfs, btrfs. Succeeds too if
  /// it already is.
  virtual task<result<>> grow(std::string device, std::string fstype, std::string target, HelperOwner owner,
                              Until until) = 0;
  /// Opens the device with O_EXCL and closes it again: in_use if anyone (also in another mount namespace) has it
  /// mounted or claimed.
  virtual task<result<>> check_unused(std::string device, HelperOwner owner, Until until) = 0;
  /// Sets the attributes that the number of an nbd device keeps over a disconnect: docs/devices.md#numbers has the
  /// table. Only differences are written. Call it only right after connect. failed_precondition: the device stays
  /// read-only.
  virtual task<result<>> tune(std::string kernel_name, NumberUse use, HelperOwner owner, Until until) = 0;
};

/// Whether a helper of an earlier incarnation still holds the busy file. Cannot hang.
bool busy(const std::string& busy_file);

/// Returns the path without superfluous parts: "//", "/./", a "/" at its end. ".." stays.
std::string plain_path(const std::string& path);
/// Whether the path is the folder, or below it, by its name.
bool is_below(const std::string& path, const std::string& folder);
/// Replaces `root` at the beginning of a path below it by `real_root`, its name without links.
std::string real_path(const std::string& path, const std::string& root, const std::string& real_root);

/// Resolves `path` below `root` without following a link (openat2 RESOLVE_BENEATH|NO_SYMLINKS|NO_MAGICLINKS):
/// invalid_argument when it leaves the root or meets a symlink. With `must_exist` a missing path is not_found. Without
/// it the last component may be missing, but its folder must exist.
result<> check_path(const std::string& root, const std::string& path, bool must_exist);

}  // namespace corbd::host
