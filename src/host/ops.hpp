// The helper's operations, one function each. They may hang, so the agent itself runs none of them. A step that is
// already done counts as success.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/core/time.hpp"
#include "corbd/host/fscrypt.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/kernel_needs.hpp"
#include "corbd/host/luks.hpp"

namespace corbd::host {
struct FilesystemType;
}

namespace corbd::host::ops {

/// Low-level probe: superblocks and partition tables. An error is an error, never "nothing".
result<Probe> probe(const std::string& device);

/// Implements Filesystems::mkfs.
result<std::string> mkfs(const std::string& device, const std::string& fstype, const std::string& options,
                         MkfsFor made_for = {});
/// Runs only the tool, on a device that is known to be empty.
result<> run_mkfs(const std::string& device, const FilesystemType& type, const std::string& options, MkfsFor made_for);
result<> fsck(const std::string& device, const std::string& fstype, const std::string& options);
/// Implements Filesystems::check.
result<std::string> check(const std::string& device, const std::string& fstype);
/// Implements Filesystems::inspect.
result<Inspection> inspect(const std::string& device, const std::string& fstype, bool repair);
/// See corbd/host/kernel_needs.hpp.
result<KernelNeeds> kernel_needs(const std::string& device);
result<KernelNeeds> kernel_needs_of_new(const std::string& fstype, const std::string& options);

result<> mount(const std::string& device, const std::string& fstype, const std::string& target,
               const std::string& flags);
result<> bind(const std::string& source, const std::string& target, bool device_node, const std::string& flags);
result<> unmount(const std::string& target, bool sync = true);
/// Implements Mounts::limit_io. A device's first limit waits until its requests in flight end. `cgroups`: the folder,
/// /sys/fs/cgroup.
result<> limit_io(const std::string& cgroups, const std::string& pod_uid, const std::string& line);

/// Both work on a mounted filesystem. They read the device only for ext2, ext3 and ext4.
result<Extent> extent(const std::string& device, const std::string& fstype, const std::string& target);
result<> grow(const std::string& device, const std::string& fstype, const std::string& target);
/// All three return not_found if nothing is mounted there.
result<std::uint64_t> trim(const std::string& target);
/// Implements Mounts::trim_from: ranges of `range` bytes one after another, until that time is over. Nothing ends the
/// kernel's work on a range early, so a range has few objects.
inline constexpr std::uint64_t kTrimRange = 128 << 20;
result<TrimPiece> trim_from(const std::string& target, std::uint64_t from, std::uint64_t range = kTrimRange,
                            std::chrono::milliseconds lasts = std::chrono::milliseconds(500));
result<Usage> usage(const std::string& target);

/// Implement Mounts::freeze and thaw. An answer of freeze() is final: nothing of it is under way any more. Its caller
/// may have left, or died, before it ends: it leaves nothing frozen that it froze later than `last`.
result<std::string> freeze(const std::string& target, time_point last,
                           time_point (*now)() = std::chrono::steady_clock::now);
result<bool> thaw(const std::string& target);

/// These implement the Luks port. `iterations` are argon2's; 0 means as many as take two seconds here.
result<LuksHeader> luks_look(const std::string& device);
/// Returns the bytes left by the memory limits of a process's cgroup and those above it; nothing: there is no limit.
/// Memory that the kernel could reclaim, such as its cache, counts as free. `cgroups`: the mount of cgroup v2. `own`:
/// the process's /proc/PID/cgroup.
std::optional<std::uint64_t> memory_room(const std::string& cgroups, const std::string& own);
/// Limit for trying a passphrase. An iteration of pbkdf2, or one KiB that argon2 fills once, takes about a microsecond
/// of a processor, so this is two minutes. A key made by cryptsetup takes two seconds on the machine that makes it.
inline constexpr std::uint64_t kMaxHashing = std::uint64_t{1} << 27;
result<> luks_format(const std::string& device, const Secret& passphrase, std::uint32_t iterations,
                     const LuksFormat& how = {});
result<> luks_open(const std::string& device, const std::string& mapping, const Secret& passphrase, LuksOpening how);
result<> luks_resize(const std::string& mapping);
result<> luks_close(const std::string& mapping);
result<bool> luks_opens(const std::string& device, int slot, const Secret& passphrase);
result<> luks_add_key(const std::string& device, int slot, const Secret& known, const Secret& added,
                      std::uint32_t iterations);
result<> luks_remove_key(const std::string& device, int slot);

/// These implement the Fscrypt port.
result<EncryptedFolder> fscrypt_look(const std::string& target);
result<> fscrypt_make(const std::string& target, const FscryptSecret& secret);
result<> fscrypt_unlock(const std::string& target, const FscryptSecret& secret);
result<> fscrypt_lock(const std::string& target);

result<> check_unused(const std::string& device);
/// Implements Filesystems::tune. `folder`: /sys/block/nbd0; `node`: /dev/nbd0, which is opened only if its flag
/// differs.
result<> tune(const std::string& folder, const std::string& node, NumberUse use);

/// Returns pids of the rbd-nbd processes that serve /dev/nbd<index> (host/daemons.hpp). `root`: "", or the parent of
/// another /proc and /sys.
result<std::vector<int>> daemons(const std::string& root, std::uint32_t index, const std::string& backend);
/// Returns OtherServer::uncached of those processes.
std::string uncached_process(const std::string& root, const std::vector<int>& serving);
result<> dismiss(std::uint32_t index, const std::string& backend);

}  // namespace corbd::host::ops
