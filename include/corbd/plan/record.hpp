// The durable state of a volume: one file per volume, written before acting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
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

/// Names under which a volume's VolumeAttachment is found; empty: unknown.
struct AgentNames {
  std::string driver;
  std::string node;  ///< orchestrator's name for it
  bool operator==(const AgentNames&) const = default;
};

/// Use of the device, the same at all its staging paths.
struct Use {
  bool block = false;
  bool read_only = false;
  bool shared = false;  ///< other nodes write it too: its lock goes from client to client, and nothing is to be proven
  /// Whether this node writes it, and no other node may.
  bool writes_alone() const { return !read_only && !shared; }
  bool operator==(const Use&) const = default;
};

/// KMS of a volume whose filesystem is on the LUKS mapping above the device.
struct DeviceKms {
  std::string id;
  bool operator==(const DeviceKms&) const = default;
};
/// KMS of a volume with encrypted files (fscrypt).
struct FilesKms {
  std::string id;
  bool operator==(const FilesKms&) const = default;
};
struct Encryption {
  std::variant<DeviceKms, FilesKms> kms;
  std::string tenant = {};  ///< namespace of the volume's claim, which its KMS may ask for; "": it is not known
  const std::string& kms_id() const {
    return std::visit([](const auto& one) -> const std::string& { return one.id; }, kms);
  }
  bool operator==(const Encryption&) const = default;
};

/// State of a device that rbd-nbd made and may serve still. Once rbd-nbd is dead its client is fenced and we serve it.
struct Adoption {
  std::string uncached;  ///< address of an rbd-nbd's client that acknowledged only stored writes, by the facts while it
                         ///< lived; "": none
  bool operator==(const Adoption&) const = default;
};

/// Our own break of a dead lock, by the versions of the image's header (image::Ownership).
struct LockBreak {
  std::uint64_t before = 0;                 ///< when the lock was about to be broken
  std::optional<std::uint64_t> after = {};  ///< and after it, when a later start found its break time untouched
  bool operator==(const LockBreak&) const = default;
};

/// Facts that may prove that the image is still this node's.
struct Proof {
  std::string attachment_uid;  ///< UID of the VolumeAttachment under which it was served last; empty: unknown
  std::string reattached_as;   ///< UID of a later VolumeAttachment, which appeared while rbd-nbd served it and is not
                               ///< proven yet; empty: none
  std::string signed_as;       ///< UID that our image-meta.json is known to have had; empty: none is known
  std::optional<LockBreak> lock_break;
  std::optional<LockCall> lock_call;      ///< call for the lock of an image that has a device here, noted before it is
                                          ///< made and until the device is served: an agent that dies does not learn
                                          ///< its end
  std::optional<std::uint64_t> modified;  ///< the image's modify timestamp (image::Ownership) while this node serves
                                          ///< it; nothing: unknown
  /// A try acted on an operator override (`on_word` on disk) and did not serve the device: the lock's state rests on
  /// that override, and proves nothing to a later try.
  bool operator_override = false;
  bool operator==(const Proof&) const = default;
};

/// A format that was begun on this very device and did not end.
struct Format {
  std::string marker;                         ///< on the image
  std::optional<std::uint64_t> version = {};  ///< krbd: header's version (image::Ownership) since the marker was set;
                                              ///< as long as it is the same, nobody else had the image's lock
  bool operator==(const Format&) const = default;
};

struct Device {
  device::Kind kind = device::Kind();  ///< also before there is a device
  std::optional<std::uint32_t> index;  ///< /dev/nbd<n>, /dev/rbd<n>
  std::uint64_t size = 0;              ///< bytes at connect
  std::uint32_t block_size = 512;      ///< bytes
  bool exclusive_lock = false;         ///< the image had the feature when the device was named; earlier versions ask
  std::string boot_id;                 ///< boot whose kernel has the device
  IoLimits io_limits = {};             ///< limits of the image of a kernel client's volume, read when it was mapped
  bool operator==(const Device&) const = default;
};

/// A freeze of its filesystem by this node's agent, noted before it begins and until it is thawed. A freeze outlives
/// the agent.
struct Freeze {
  std::string id;  ///< Frozen::id
  static constexpr std::tuple fields{fields::required("id", &Freeze::id)};
  bool operator==(const Freeze&) const = default;
};

struct Record {
  std::string volume_id;
  AgentNames names;  ///< names of the agent that staged it
  Source source;
  std::string user;  ///< user of the Ceph key in the volume's key file
  image::Key key;
  PvcRef claim;              ///< for people: from the last stage or publish
  bool provisioned = false;  ///< made by ceph-csi's provisioner, whose controller reads the note
  std::optional<Note> note;  ///< last written note
  Use use;
  std::optional<Encryption> encryption;
  std::optional<Adoption> adopting;
  bool cache_lost = false;  ///< rbd-nbd died, perhaps with acknowledged writes in its cache: every flush of this device
                            ///< fails until an operator accepts the loss, so that every caller notices
  bool damaged = false;     ///< its filesystem was found damaged, and OnDamage::read_only mounts it without a write
  bool failed = false;      ///< given up: it is never served again, its device answers EIO until it is unstaged
  Proof proof;
  std::optional<Format> format;
  std::optional<Freeze> freeze;
  Device device;
  std::vector<Staging> stagings;
  std::vector<Publish> publishes;

  bool reads_only() const { return use.read_only || damaged; }
  bool encrypts_device() const { return encryption && std::holds_alternative<DeviceKms>(encryption->kms); }
  bool encrypts_files() const { return encryption && std::holds_alternative<FilesKms>(encryption->kms); }

  static constexpr std::tuple fields{
      fields::required("volume_id", &Record::volume_id),
      fields::required("driver", &Record::names, &AgentNames::driver),
      fields::required("source", &Record::source),
      fields::required("user", &Record::user),
      fields::required("key", &Record::key),
      fields::required("size", &Record::device, &Device::size),
      fields::required("block_size", &Record::device, &Device::block_size),
      fields::required("exclusive_lock", &Record::device, &Device::exclusive_lock),
      fields::required("block", &Record::use, &Use::block),
      fields::required("read_only", &Record::use, &Use::read_only),
      fields::added("shared", &Record::use, &Use::shared),
      fields::whether("adopting", &Record::adopting),
      fields::added("failed", &Record::failed),
      fields::required("boot_id", &Record::device, &Device::boot_id),
      fields::required("attachment_uid", &Record::proof, &Proof::attachment_uid),
      fields::required("stagings", &Record::stagings),
      fields::required("publishes", &Record::publishes),
      fields::rare("node", &Record::names, &AgentNames::node),
      fields::rare("kind", &Record::device, &Device::kind),
      fields::rare("cache_lost", &Record::cache_lost),
      fields::rare("uncached", &Record::adopting, &Adoption::uncached),
      fields::rare("reattached_as", &Record::proof, &Proof::reattached_as),
      fields::rare("signed_as", &Record::proof, &Proof::signed_as),
      fields::required("kms_id", &Record::encryption, &Encryption::kms, &DeviceKms::id),
      fields::required("file_kms_id", &Record::encryption, &Encryption::kms, &FilesKms::id),
      fields::rare("tenant", &Record::encryption, &Encryption::tenant),
      fields::rare("device", &Record::device, &Device::index),
      fields::required("breaking", &Record::proof, &Proof::lock_break, &LockBreak::before),
      fields::rare("freed", &Record::proof, &Proof::lock_break, &LockBreak::after),
      fields::rare("lock_call", &Record::proof, &Proof::lock_call),
      fields::rare("modified", &Record::proof, &Proof::modified),
      fields::required("format", &Record::format, &Format::marker),
      fields::rare("format_version", &Record::format, &Format::version),
      fields::rare("on_word", &Record::proof, &Proof::operator_override),
      fields::rare("provisioned", &Record::provisioned),
      fields::rare("claim", &Record::claim),
      fields::rare("io_limits", &Record::device, &Device::io_limits),
      fields::rare("note", &Record::note),
      fields::rare("freeze", &Record::freeze),
      fields::rare("damaged", &Record::damaged)};
  bool operator==(const Record&) const = default;
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
