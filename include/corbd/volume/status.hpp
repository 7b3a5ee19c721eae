// A volume's status for people, metrics and the healer. It is in memory or comes from sysfs, so reading it costs the
// cluster nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/cephcsi/io_limits.hpp"
#include "corbd/cephcsi/key.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/core/time.hpp"
#include "corbd/device/figures.hpp"
#include "corbd/device/values.hpp"
#include "corbd/image/values.hpp"

namespace corbd::volume {

/// The state of a volume (docs/glossary.md#states).
enum class Health { absent, staging, staged, reconnecting, unproven, lost, failed, unstaging };
std::string_view name(Health health);

/// A request that waits longer than this: the cluster answers nobody, or not this client.
inline constexpr std::chrono::seconds kSilentAfter{60};

/// Freezes of a volume's filesystem for snapshots, since the agent's start.
struct Freezes {
  std::uint32_t made = 0;     ///< the snapshotter was told that the filesystem stands still
  std::uint32_t refused = 0;  ///< it was told that it does not, which fails the snapshot
  std::uint32_t broken = 0;   ///< thawed before the snapshot was made: that one may need a journal replay
  duration longest{};         ///< from a request to the thaw; writers waited for a part of it
};

/// Events of a volume since the agent's start, for metrics and people.
struct Counts {
  std::uint32_t links_lost = 0;
  duration longest_stall{};         ///< from the loss of the server until the last request of that time was answered
  std::uint64_t trimmed_bytes = 0;  ///< free space that its filesystem gave back
  std::optional<std::chrono::system_clock::time_point> trimmed_at;  ///< when its filesystem was last trimmed whole
  Freezes freezes;
};

/// The bytes that a raw block volume's image had stored when its cluster was last asked (image::Image::used_bytes()).
struct UsedBytes {
  std::uint64_t bytes = 0;
  time_point at{};
};
/// A count that is older says nothing any more.
inline constexpr std::chrono::minutes kUsedCountsFor{10};

/// Limits that a pod's cgroup was asked for.
struct PodLimits {
  std::string pod;  ///< "namespace/name"; empty: unknown
  cephcsi::IoLimits limits;
};

/// A Ceph user and what people may see of its key.
struct ShownKey {
  std::string user;         ///< without "client."
  std::string fingerprint;  ///< 12 hex digits, the same on every node; empty: this agent does not know the key
  cephcsi::KeyType type = cephcsi::KeyType::unknown;
  std::optional<std::chrono::sys_seconds> made;  ///< by cephcsi::made_at()
  bool operator==(const ShownKey&) const = default;
};
/// The fingerprint is a digest of user and key. A key is 16 or 32 random bytes, so nobody finds it by its digest.
ShownKey shown(const std::string& user, const Secret& key);

/// The Ceph users and keys of a volume. They change under the running volume (docs/healing.md).
struct VolumeKeys {
  std::optional<ShownKey> present;  ///< serves the volume, or is to heal it; nothing: unknown
  std::optional<ShownKey> next;     ///< the volume is to have this instead
  std::string why_not;              ///< reason why it does not have `next` yet, or why nobody knows it
  std::vector<std::string> others;  ///< further users that it may need: in its files, or not decided on by the cluster
};

struct Status {
  std::string volume_id;
  Health health = Health::absent;
  std::chrono::system_clock::time_point since;  ///< begin of the present health
  std::string cluster_id;                       ///< as in config.json
  std::string client;                           ///< address of the Ceph client that serves it; empty: none of ours
  std::string image;                            ///< "pool/namespace/image" as the stage named it
  std::string image_key;                        ///< image::Key::text()
  std::optional<std::uint32_t> device;          ///< /dev/nbd<n>, /dev/rbd<n>
  device::Kind kind = device::Kind();           ///< kind of the device
  std::uint64_t size = 0;                       ///< bytes of the device
  bool block = false, read_only = false;
  std::vector<std::string> staged_at, published_at;
  std::string pvc, pvc_namespace, pv;  ///< names of its claim and PersistentVolume; empty: unknown
  std::vector<std::string> pods;       ///< "namespace/name", if kubelet passes it
  std::vector<PodLimits> io_limits;    ///< limits of pods that have any
  std::string attachment_uid;          ///< Proof::attachment_uid
  std::string driver, node;            ///< Record::names
  bool adopting = false;               ///< Record::adopting

  bool in_use = false;                      ///< the device is mounted, or another device lies above it
  bool turned_read_only = false;            ///< the filesystem turned read-only by itself
  bool damaged = false;                     ///< Record::damaged
  std::optional<std::uint64_t> shrunk_to;   ///< bytes of the image, which another client made smaller than the device
  bool access_lost = false;                 ///< its client was cut off or lost the lock: it needs another client
  std::optional<bool> caches_before_flush;  ///< image::Image::caches_before_flush(); nothing: it is not open
  std::optional<image::ReadPolicy> reads;   ///< nothing: the image is not open in this agent
  std::string kernel_refused;               ///< address of the device's kernel client, once it was blocklisted
  bool cache_lost = false;                  ///< rbd-nbd lost its cache, so every flush fails (Record::cache_lost)
  std::string refused_again;                ///< image::Image::refused_again()
  bool served_by_other = false;             ///< by rbd-nbd; this agent takes over once that is dead
  VolumeKeys keys;
  std::vector<int> other_pids;               ///< processes of that rbd-nbd
  duration other_silent{};                   ///< their ServerWatchdog::lasted()
  bool unserved = false;                     ///< the kernel has its device and nobody answers for it
  std::optional<time_point> unserved_since;  ///< not earlier than the agent's start
  std::uint32_t waiting = 0;                 ///< requests that the kernel waits for
  duration oldest{};                         ///< age of the oldest request that the cluster has not answered
  duration unanswered{};                     ///< the same, of requests and of the agent's own calls on the image
  Counts counts;
  bool quiesces = false;          ///< snapshots freeze its filesystem
  bool frozen = false;            ///< one does so now, or did and nobody has thawed it yet
  device::Figures figures;        ///< sum of its links since the agent's start; all zero if the kernel serves it
  std::optional<UsedBytes> used;  ///< a raw block volume's; nothing: not counted, or it cannot be
  std::string why_not_trimmed;    ///< why the scheduled trim leaves it out, or waits; empty: it does not
  std::uint64_t in_flight = 0;    ///< requests that the cluster has not answered
  std::optional<Error> last_error;
};

/// Returns Status::used, unless it is too old.
inline std::optional<std::uint64_t> used_now(const Status& status, time_point now) {
  return status.used && now - status.used->at <= kUsedCountsFor ? std::optional(status.used->bytes) : std::nullopt;
}

/// A device with a volume ID that no record names: rbd-nbd's, another driver's, or ours from before the records were
/// lost. Also a device that nobody serves because its Ceph key is gone, and a device of the kernel client that ceph-csi
/// staged.
struct Unclaimed {
  std::string volume_id;
  std::uint32_t device = 0;         ///< /dev/nbd<n>, /dev/rbd<n>
  std::vector<std::string> mounts;  ///< mount points and binds of the device, or of the mapping above it
  device::Kind kind = device::Kind();
};

struct Notice {
  std::string reason;  ///< "VolumeInUse"
  bool warning = false;
  std::string message;
};

/// A volume's health changed.
struct Change {
  std::chrono::system_clock::time_point at;
  std::string volume_id;
  Health from = Health::absent, to = Health::absent;
  std::string why;
};

}  // namespace corbd::volume
