// The present facts of one volume. The kernel is believed over memory and over the record.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/time.hpp"
#include "corbd/device/values.hpp"
#include "corbd/host/values.hpp"
#include "corbd/image/values.hpp"
#include "corbd/plan/holder.hpp"
#include "corbd/plan/record.hpp"

namespace corbd::plan {

/// Value of image metadata rbd.csi.ceph.com/encrypted once the image has its LUKS header (docs/sources.md#luks).
inline constexpr const char* kEncrypted = "encrypted";
/// Its earlier value, when ceph-csi's provisioner has made the key.
inline constexpr const char* kPrepared = "encryptionPrepared";

/// A KMS's treatment of a write that arrives after another one.
struct KeyWrites {
  bool ordered = true;  ///< a late write changes nothing; false: the KMS takes it for the newest
  /// Version that the next write replaces, if the KMS counts them.
  std::optional<std::uint64_t> version = std::nullopt;
};

/// The key with which a new LUKS header, or a new encrypted folder, is made.
struct FirstKey {
  bool there = true;  ///< it is where the volume's keys are, or where a KMS has the one passphrase for all volumes
  KeyWrites writes = {};
  bool sent = false;     ///< not ordered: image metadata corbd/first-key names one that was sent to the KMS
  bool is_sent = false;  ///< and that is the stored one
  bool at_hand = false;  ///< and this agent has it
};

/// Whether the volume's present key in its KMS opens each of the two key slots that a rotation uses.
struct Keys {
  struct Slot {
    bool used = false, opens = false;
  } first, second;  ///< slots 0 and 1
  KeyWrites writes = {};
};

/// A key that this operation sent to the KMS, which confirmed it.
struct KeyStored {
  bool fresh = false;  ///< a new key; otherwise the same again
  std::optional<std::uint64_t> version = std::nullopt;
};

/// Facts that cost a call; absent means unknown, never false. They live for one operation.
struct Facts {
  std::optional<image::Resolved> resolved;
  std::optional<bool> fenced;           ///< our dead incarnations of this cluster cannot write any more
  std::optional<image::Header> header;  ///< read before the image was opened
  std::optional<image::Ownership> ownership;
  std::optional<std::string> encryption;  ///< image metadata rbd.csi.ceph.com/encrypted; "": there is none
  std::optional<host::LuksHeader> luks;   ///< header on the device
  bool fits = false;                      ///< the mapping was made as large as its device
  std::optional<FirstKey> first_key;
  std::optional<Keys> keys;
  std::optional<KeyStored> key_stored;
  std::optional<host::EncryptedFolder> folder;  ///< on the mounted filesystem
  bool folder_locked = false;                   ///< locked in this operation
  std::optional<host::Probe> probe;             ///< content of the device, or of the mapping that holds the filesystem
  std::optional<bool> has_data;
  std::optional<std::string> format_marker;  ///< image metadata corbd/format; "": there is none
  std::optional<bool> checked;               ///< fsck ran, or the filesystem is new
  std::string damage;                        ///< errors that this operation's check found and left; empty: none
  bool image_size_asked = false;             ///< the cluster answered the image's size in this operation
  std::optional<host::Extent> filesystem;
  bool trimmed = false;
  std::optional<std::string> freeze_answer;  ///< the kernel's: "", it is frozen; or why not, and then it is not
  bool thawed = false;                       ///< the kernel says so, in this operation
  bool grown = false;                        ///< space that the tool leaves unused stays so
  /// Whether the device was to be read-only, if this operation tried: attributes that the driver itself holds read-only
  /// stay so.
  std::optional<bool> tuned;
  std::map<std::string, result<>>
      cleared;  ///< paths that were unmounted in this operation: gone, or why the bare folder or file stays
  std::optional<bool> unused;                 ///< a helper could open the device O_EXCL
  std::optional<std::optional<Stash>> stash;  ///< ceph-csi's, at the wish's staging path
  std::optional<bool> served_by_other;        ///< an rbd-nbd process serves the device
  std::optional<image::Ownership> uncached;   ///< read while that process lived, and was known to have no cache
  std::optional<image::Ownership> beside;     ///< read while that process lived, whatever cache it has
  bool dismissed = false;                     ///< that process was asked to end, and did, in this operation
  bool disconnected = false;                  ///< the device takes no link any more; whoever has it open still keeps it
  bool gone = false;                          ///< the very image does not exist any more
  bool secret_asked = false;  ///< this operation has compared the volume's Secret with the user and key that it has
  std::optional<bool> user_refused;   ///< the cluster lets the user of the open image's client in no more
  bool client_deaf = false;           ///< it lets the user in, but that client gets no answers, and a new one does
  bool other_refused = false;         ///< the cluster refuses the volume's present user too, which is another one
  bool client_judged = false;         ///< GiveUpClient ran in this operation
  bool next_tried = false;            ///< OpenNext ran in this operation
  std::optional<Error> next_refused;  ///< and why it did not open the image
  bool client_changed = false;        ///< ChangeClient ran in this operation
  bool refused = false;               ///< the cluster refused this operation's user or key, or there is none
  std::optional<Attachment> attachment;
  std::optional<std::vector<Holder>> holders;  ///< the foreign clients of `ownership`
  std::set<std::string> evicted;               ///< addresses of foreign clients that were blocklisted in this operation
  std::optional<Error> node_fenced;            ///< the cluster refuses this node
  std::optional<Error> unsafe_config;          ///< why the image of an rbd-nbd's device is not opened: a cache
  std::optional<Note> noted;                   ///< written in this operation
  bool note_refused = false;                   ///< refused in this operation
  std::optional<IoLimits> io_limits;           ///< the image's limits
  std::optional<bool> io_limited;              ///< the pod's cgroup took them, in this operation
};

struct Observation {
  // From here on: facts that are cheap and cannot hang.
  std::string boot_id;
  LocalTime now;
  std::vector<device::Seen> devices;  ///< nbd: those with this volume's identifier; krbd: those that show its image
  result<device::Abilities> kernel_client = device::Abilities();  ///< asked when a stage may need it
  std::optional<device::Command> command;  ///< to the kernel, on its device: its effect is unknown before its end
  bool busy = false;                       ///< a helper of an earlier incarnation still works on it
  std::vector<host::Mount>
      mounts;  ///< mounts of our device, and anything mounted on the paths of the wish and of the record
  enum class Link { none, serving, held, closed } link = Link::none;
  bool connected = false;       ///< our link is the one the kernel device uses
  bool fails_flushes = false;   ///< and answers flushes with the error that Record::cache_lost asks for
  bool link_inherited = false;  ///< the predecessor handed its link over, and no session has resumed it yet
  bool image_open = false;
  bool exclusive_lock = false;   ///< the open image has the feature
  bool image_closing = false;    ///< its close did not end yet: it serves nobody any more
  std::uint64_t image_size = 0;  ///< bytes; 0 while it is not open
  bool untuned = false;          ///< connected by us, and its queue is still as the last user of the number left it
  bool tombstone = false;        ///< instead of an image a tombstone is open: it answers EIO to everything
  std::string client;            ///< address of the open image's client
  bool image_cut_off = false;    ///< its client was cut off, or lost its lock: whatever proved it ours is void
  bool lock_held = false;        ///< the exclusive lock
  duration lock_took{};  ///< image::Image::lock_took(); max: it was asked for, and nobody knows since when. Of a
                         ///< lock that an agent asked for that died: time until it was seen
  std::optional<std::uint64_t> modified;   ///< the image's modify timestamp (image::Ownership) when its lock was taken
  bool writer_marked = false;              ///< the open image, which has no exclusive-lock, has the mark of its writer
  std::optional<duration> other_dead_for;  ///< time since the link of rbd-nbd, which was seen serving until then, ended
  bool access_lost = false;            ///< our client was cut off or lost its lock while it served; not served since
  std::optional<duration> in_use_for;  ///< time since it was first found in use by another client, without a break
  std::optional<duration> lost_for;    ///< time since it was first proven lost, without a break
  bool freeze_refused = false;         ///< the kernel refused the freeze that the record names: it is not ours to thaw
  bool key_known = false;              ///< a Ceph key is available
  std::string key_unread;              ///< why the key file was not read; empty: it was
  bool credential_untried = false;     ///< this operation brought a user and key that the cluster has not seen yet
  bool client_given_up = false;        ///< image::Image::client_given_up(), of the open image
  bool session_stuck = false;          ///< its session has ended, and that one's operations did not end in time
  bool silent = false;            ///< a request of this very volume, or a call on its image, has got no answer for long
  bool other_credential = false;  ///< the volume's user and key are others than those of the open image's client
  bool credential_kept = false;   ///< the cluster has taken the volume's user and key, and they are on the disk
  bool client_needed =
      false;  ///< a silent client serves another volume that has no other user and key, and gets answers
  std::string image_writer, image_reader;  ///< other volumes of this node on the same image; empty: none
  std::string path_owner;  ///< the other volume to which the target or the staging path of an unpublish or unstage
                           ///< belongs; empty: none

  Facts facts;

  const device::Seen* device() const { return devices.size() == 1 ? &devices.front() : nullptr; }
};

/// So long after the last look at the header a lock proves what that look proved. Whoever has the image in between has
/// to end our client's watch, open it, take the lock, write and close it, and let our client in again.
inline constexpr std::chrono::seconds kProofLasts{5};

/// Returns the bytes of an image's device: whole blocks.
constexpr std::uint64_t device_bytes(std::uint64_t image_bytes, std::uint32_t block_bytes) {
  return image_bytes / block_bytes * block_bytes;
}

/// Returns the time that breaking our own dead lock leaves on the header: never the same twice, and far from now.
constexpr std::int64_t break_time(std::uint64_t header_version) {
  constexpr std::int64_t half = std::int64_t{1} << 31;
  return half + static_cast<std::int64_t>(header_version % static_cast<std::uint64_t>(half));
}

/// Returns the name of an encrypted volume's mapping, as in ceph-csi: "luks-rbd-<volume id>", below /dev/mapper.
std::string mapping_name(const std::string& volume_id);
/// Returns the volume ID in that name; "": it is no such name, or that of the dm-integrity mapping below.
std::string volume_of_mapping(std::string_view mapping);
// The following functions take the volume's ID, because only some kinds of devices carry it (device::Traits).
/// Returns the mapping above the device of an encrypted volume; null if it is not open.
const device::UpperDevice* mapping_of(const device::Seen& device, const std::string& volume_id);
/// Returns the dm-integrity mapping between the two, which cryptsetup names "luks-rbd-<volume id>_dif". Null: there is
/// none.
const device::UpperDevice* integrity_of(const device::Seen& device, const std::string& volume_id);
/// Whether it is one of an encrypted volume's own mappings: those two, or a temporary one that a killed format of
/// libcryptsetup left.
bool is_own_mapping(const device::UpperDevice& holder, const std::string& volume_id);
/// Returns the first of them to close; null: there is none.
const device::UpperDevice* top_mapping(const device::Seen& device, const std::string& volume_id);

/// Returns the bytes for a filesystem: of the mapping above the device, if there is one.
std::uint64_t usable_bytes(const device::Seen& device, const std::string& volume_id);

/// Whether the mount shows this device, or the mapping above it: its filesystem, or a bind of its node.
bool shows(const host::Mount& mount, const device::Seen& device, const std::string& volume_id);

}  // namespace corbd::plan
