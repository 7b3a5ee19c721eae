// The durable state of a volume: one file per volume, written before acting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/fields.hpp"
#include "corbd/core/time.hpp"
#include "corbd/device/values.hpp"
#include "corbd/image/values.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::plan {

/// The version that the newest kind of device needs.
inline constexpr int plain_record_version = std::ranges::max(device::kTraits, {}, &device::Traits::records).records;
/// The version for a volume whose files are encrypted: an older agent would publish the folder around its encrypted
/// folder.
inline constexpr int record_version = std::max(plain_record_version, 2);

struct Staging {
  std::string path;
  Capability capability;
  bool complete = false;  ///< the stage succeeded; before that an intent, whose stage may be undone
  static constexpr std::tuple fields{fields::required("path", &Staging::path),
                                     fields::required("capability", &Staging::capability),
                                     fields::required("complete", &Staging::complete)};
  bool operator==(const Staging&) const = default;
};

struct Publish {
  std::string target, staging;
  bool read_only = false;
  std::string pod = {};  ///< "namespace/name", for people; empty: unknown
  IoLimits limits = {};  ///< limits for the pod's cgroup; none once it refused them
  static constexpr std::tuple fields{fields::required("target", &Publish::target),
                                     fields::required("staging", &Publish::staging),
                                     fields::required("read_only", &Publish::read_only),
                                     fields::rare("pod", &Publish::pod), fields::rare("limits", &Publish::limits)};
  bool operator==(const Publish&) const = default;
};

/// This node's note in the metadata of an image, for ceph-csi's controller (docs/sources.md#node-to-controller).
struct Note {
  std::string user;     ///< Ceph user
  std::string address;  ///< its client's, "10.0.0.1"; empty without fencing
  static constexpr std::tuple fields{fields::required("user", &Note::user),
                                     fields::required("address", &Note::address)};
  bool operator==(const Note&) const = default;
};

/// A time by both clocks of this machine, in milliseconds. The steady clock stands still while the machine is
/// suspended, and begins anew with each boot. The wall clock may be set.
struct LocalTime {
  std::int64_t steady_ms = 0, wall_ms = 0;
  static constexpr std::tuple fields{fields::required("steady_ms", &LocalTime::steady_ms),
                                     fields::required("wall_ms", &LocalTime::wall_ms)};
  bool operator==(const LocalTime&) const = default;
};
/// Returns the time between two times of one boot, by the clock that shows more.
constexpr duration between(const LocalTime& then, const LocalTime& now) {
  return std::chrono::milliseconds(std::max(now.steady_ms - then.steady_ms, now.wall_ms - then.wall_ms));
}

/// A request for an image's exclusive lock whose end is not noted yet.
struct LockCall {
  std::string client;  ///< address of the client that asks
  LocalTime began = {};
  static constexpr std::tuple fields{fields::required("client", &LockCall::client),
                                     fields::required("began", &LockCall::began)};
  bool operator==(const LockCall&) const = default;
};

struct Record {
  std::string volume_id;
  std::string driver;
  std::string node;  ///< orchestrator's name for it, from the agent that staged it; empty: that did not say
  Source source;
  std::string user;  ///< user of the Ceph key in the volume's key file
  image::Key key;
  std::uint64_t size = 0;          ///< bytes of the device at connect
  std::uint32_t block_size = 512;  ///< bytes
  bool exclusive_lock = false;     ///< the image had the feature when the device was named; earlier versions ask
  bool block = false;              ///< use of the device, the same at all its staging paths
  bool read_only = false;
  std::string
      kms_id;  ///< an encrypted volume's, whose filesystem is on the LUKS mapping above the device; "": not encrypted
  std::string file_kms_id;  ///< KMS of a volume with encrypted files (fscrypt), instead of kms_id
  std::string tenant;   ///< namespace of an encrypted volume's claim, which its KMS may ask for; "": it is not known
  bool shared = false;  ///< other nodes write it too: its lock goes from client to client, and nothing is to be proven
  bool adopting =
      false;  ///< rbd-nbd made its device and may serve it still; once it is dead its client is fenced and we serve it
  bool cache_lost = false;  ///< rbd-nbd died, perhaps with acknowledged writes in its cache: every flush of this device
                            ///< fails until an operator accepts the loss, so that every caller notices
  std::string uncached;     ///< address of an rbd-nbd's client that acknowledged only stored writes, by the facts while
                            ///< it lived; "": none
  bool failed = false;      ///< given up: it is never served again, its device answers EIO until it is unstaged
  std::string boot_id;      ///< boot whose kernel has the device
  std::string attachment_uid;           ///< UID of the VolumeAttachment under which it was served last; empty: unknown
  std::string reattached_as;            ///< UID of a later VolumeAttachment, which appeared while rbd-nbd served it and
                                        ///< is not proven yet; empty: none
  std::string signed_as;                ///< UID that our image-meta.json is known to have had; empty: none is known
  device::Kind kind = device::Kind();   ///< kind of its device, also before there is one
  std::optional<std::uint32_t> device;  ///< /dev/nbd<n>, /dev/rbd<n>
  std::optional<std::uint64_t>
      breaking;  ///< header's version (image::Ownership) when our own dead lock was about to be broken,
  std::optional<std::uint64_t> freed;  ///< and that after it, when a later start found its break time untouched
  std::optional<LockCall> lock_call;  ///< call for the lock of an image that has a device here, noted before it is made
                                      ///< and until the device is served: an agent that dies does not learn its end
  std::optional<std::uint64_t> modified;  ///< the image's modify timestamp (image::Ownership) while this node serves
                                          ///< it; nothing: unknown
  bool provisioned = false;               ///< made by ceph-csi's provisioner, whose controller reads the note
  std::optional<Note> note;               ///< last written note
  std::string format;  ///< marker on the image of a format that was begun on this very device and did not end; "": none
  std::optional<std::uint64_t> format_version;  ///< krbd: header's version (image::Ownership) since that marker was
                                                ///< set; as long as it is the same, nobody else had the image's lock
  /// A try acted on an operator override (`on_word` on disk) and did not serve the device: the lock's state rests on
  /// that override, and proves nothing to a later try.
  bool operator_override = false;
  PvcRef claim;             ///< for people: from the last stage or publish
  IoLimits io_limits = {};  ///< limits of the image of a kernel client's volume, read when it was mapped
  std::vector<Staging> stagings;
  std::vector<Publish> publishes;

  static constexpr std::tuple fields{fields::required("volume_id", &Record::volume_id),
                                     fields::required("driver", &Record::driver),
                                     fields::required("source", &Record::source),
                                     fields::required("user", &Record::user),
                                     fields::required("key", &Record::key),
                                     fields::required("size", &Record::size),
                                     fields::required("block_size", &Record::block_size),
                                     fields::required("exclusive_lock", &Record::exclusive_lock),
                                     fields::required("block", &Record::block),
                                     fields::required("read_only", &Record::read_only),
                                     fields::added("shared", &Record::shared),
                                     fields::added("adopting", &Record::adopting),
                                     fields::added("failed", &Record::failed),
                                     fields::required("boot_id", &Record::boot_id),
                                     fields::required("attachment_uid", &Record::attachment_uid),
                                     fields::required("stagings", &Record::stagings),
                                     fields::required("publishes", &Record::publishes),
                                     fields::rare("node", &Record::node),
                                     fields::rare("kind", &Record::kind),
                                     fields::rare("cache_lost", &Record::cache_lost),
                                     fields::rare("uncached", &Record::uncached),
                                     fields::rare("reattached_as", &Record::reattached_as),
                                     fields::rare("signed_as", &Record::signed_as),
                                     fields::rare("kms_id", &Record::kms_id),
                                     fields::rare("file_kms_id", &Record::file_kms_id),
                                     fields::rare("tenant", &Record::tenant),
                                     fields::rare("device", &Record::device),
                                     fields::rare("breaking", &Record::breaking),
                                     fields::rare("freed", &Record::freed),
                                     fields::rare("lock_call", &Record::lock_call),
                                     fields::rare("modified", &Record::modified),
                                     fields::rare("format", &Record::format),
                                     fields::rare("format_version", &Record::format_version),
                                     fields::rare("on_word", &Record::operator_override),
                                     fields::rare("provisioned", &Record::provisioned),
                                     fields::rare("claim", &Record::claim),
                                     fields::rare("io_limits", &Record::io_limits),
                                     fields::rare("note", &Record::note)};
  bool operator==(const Record&) const = default;
};

/// Names under which a volume's VolumeAttachment is found; empty: unknown.
struct AgentNames {
  std::string driver, node;
};

/// Returns why an agent of the names `own` cannot tell whether the volume stayed here, and the way out. Empty: it can.
std::string other_name(const AgentNames& staged_as, const AgentNames& own);

/// Whether it is staged or published there. `path`: a staging path, the mount below it, or a target.
bool is_at(const Record& record, const std::string& path);

/// Returns the file's bytes: {"version","crc32c","record"}; the sum is over the serialized record. Never a secret.
std::string encode(const Record& record);
/// state_corrupt: not ours, or with a wrong sum. state_newer: a later version. unavailable: there is no memory to read
/// it.
result<Record> decode(std::string_view bytes);

}  // namespace corbd::plan
