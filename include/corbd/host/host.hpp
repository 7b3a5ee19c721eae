// Ports to this node's mounts and filesystems. Everything that may wait for a device runs in a helper process; only mountinfo, which cannot
// hang, is read here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"

namespace corbd::host {

/// One line of /proc/self/mountinfo.
struct Mount {
  std::uint64_t id = 0;
  std::uint32_t dev_major = 0, dev_minor = 0;  ///< of the filesystem; for a bind of a device node: of devtmpfs
  std::string root;      ///< within the filesystem: "/", or "/nbd0" for a bind of a device node from devtmpfs
  std::string target;
  std::string fstype;
  std::string source;
  std::string options;   ///< per mount, comma separated
  bool read_only = false;  ///< this mount's own flag
};

/// What blkid says of a device. ambivalent: two signatures at once: never formatted, never mounted.
struct Probe {
  enum class Kind { nothing, filesystem, partitions, other, ambivalent } kind = Kind::ambivalent;
  std::string type;  ///< "ext4"
};

class Mounts {
 public:
  virtual ~Mounts() = default;
  virtual result<std::vector<Mount>> table() const = 0;
  /// Mounts a filesystem at `target` (made if absent: 0750). `flags`: mount(8) names, comma separated ("nodev,noatime").
  virtual task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags, std::string busy_file,
                               Until until) = 0;
  /// Binds `source` on `target` (made if absent: folder 0750, or file 0600 when `device_node`), with `flags` such as "ro" set on the bind.
  virtual task<result<>> bind(std::string source, std::string target, bool device_node, std::string flags, std::string busy_file,
                              Until until) = 0;
  /// syncfs, umount, remove the empty target. in_use when busy. Done too when nothing is mounted: then only the target goes, if empty.
  virtual task<result<>> unmount(std::string target, std::string busy_file, Until until) = 0;
};

class Filesystems {
 public:
  virtual ~Filesystems() = default;
  virtual task<result<Probe>> probe(std::string device, std::string busy_file, Until until) = 0;
  /// options empty: ceph-csi's defaults of that type. Fails with not_empty if blkid finds anything, in the same helper call.
  virtual task<result<>> mkfs(std::string device, std::string fstype, std::string options, std::string busy_file, Until until) = 0;
  /// fsck -a; 0 and 1 are success.
  virtual task<result<>> fsck(std::string device, std::string busy_file, Until until) = 0;
  /// Opens with O_EXCL and closes again: in_use when anyone (also in another mount namespace) has it mounted or claimed.
  virtual task<result<>> check_unused(std::string device, std::string busy_file, Until until) = 0;
  /// Writes the queue attributes that differ: io_timeout 1000 ms, max_sectors_kb 1024, scheduler none. Right after connect only.
  virtual task<result<>> tune(std::string kernel_name, std::string busy_file, Until until) = 0;
};

/// Whether a helper of an earlier incarnation still holds the busy file. Cannot hang.
bool busy(const std::string& busy_file);

/// Resolves `path` below `root` without following a link (openat2 RESOLVE_BENEATH|NO_SYMLINKS|NO_MAGICLINKS): invalid_argument when it
/// leaves the root or meets a symlink. `must_exist`: not_found otherwise; the last component may be missing without it.
result<> check_path(const std::string& root, const std::string& path, bool must_exist);

}  // namespace corbd::host
