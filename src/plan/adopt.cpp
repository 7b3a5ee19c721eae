// Devices that were made for ceph-csi. A device of rbd-nbd is left alone while rbd-nbd serves it. Afterwards its client
// is fenced like a dead client of our own, and the rest is healing. A device of the kernel client needs neither.
#include "adopt.hpp"

#include <algorithm>

#include "filesystem.hpp"
#include "fscrypt.hpp"
#include "stage.hpp"

namespace corbd::plan {
namespace {

/// A client's watch outlives it by 30 s (osd_client_watch_timeout): before that, its lock cannot have become anybody
/// else's.
constexpr std::chrono::seconds kWatchStands{25};

std::string foreign(const Situation& view, const std::string& why) {
  const auto& device = view.seen.devices.front();
  const std::string what =
      traits(device.kind).identified ? " carries the id of volume " : " shows the image of volume ";
  return device::path(device) + what + view.id + ", but driver " + view.policy.driver + " has no record of it, and " +
         why + ": disconnect it with the tool that made it";
}

/// Returns why the stash does not describe this device and image; empty if it does (rule 25: the identifier alone
/// authorises nothing).
std::string mismatch(const Stash& stash, const device::Seen& device, const image::Resolved& image) {
  const image::Name& name = image.name;
  if (stash.nbd != traits(device.kind).rbd_nbd)
    return std::string("ceph-csi's image-meta.json says that it was mapped by ") +
           (stash.nbd ? "rbd-nbd" : "the kernel's rbd");
  if (!stash.device.empty() && stash.device != device::path(device))
    return "ceph-csi's image-meta.json names " + stash.device;
  if (stash.image != name.image || stash.pool != name.pool || stash.ns != name.ns)
    return "ceph-csi's image-meta.json names the image " + stash.pool + "/" + stash.image;
  // ceph-csi calls only a device encrypted.
  const bool device_encrypted = !image.kms_id.empty() && !encrypts_files(image);
  if (stash.encrypted && !device_encrypted)
    return "ceph-csi's image-meta.json says that it is encrypted; the attributes of the volume do not";
  if (!stash.encrypted && device_encrypted)
    return "ceph-csi's image-meta.json does not say that it is encrypted; the attributes of the volume do";
  return "";
}

/// Waits until rbd-nbd ends, by itself or on request. Then its last writes are stored, and its lock is released. Until
/// then nobody else may have the image.
Decision dismiss(const Situation& view) {
  const auto& who = *view.seen.facts.ownership;
  if (view.record->use.shared) return Step(step::Dismiss{});
  if (!who.owner.empty() && !on_this_node(who, who.owner))
    return refuse(errc::in_use, image_of(view) + " is locked by the client at " + who.owner +
                                    ", not by rbd-nbd of this node: it is left alone");
  for (const auto& watcher : who.foreign_watchers)
    if (!on_this_node(who, watcher))
      return refuse(errc::in_use,
                    image_of(view) + " is open at " + watcher + ": rbd-nbd keeps it until that client is gone");
  return Step(step::Dismiss{});
}

/// Handles a volume with neither record nor stash. The identifier alone authorises nothing, so the device stays. Its
/// mount goes if an umount can end. A device of the kernel's client would be forgotten by that, and keep the image from
/// other nodes.
std::optional<Decision> umount_unknown(const Situation& view, const std::string& target) {
  const auto* device = view.seen.device();
  const auto of_device = [&](const auto& mount) { return mount.target == target && shows(mount, *device, view.id); };
  if (!traits(device->kind).identified)
    return refuse(errc::failed_precondition, device::path(*device) + " is mounted at " + target + ", but driver " +
                                                 view.policy.driver + " has no record of volume " + view.id +
                                                 ", and ceph-csi left no image-meta.json: run `umount " + target +
                                                 "` and `rbd unmap " + device::path(*device) + "` on this node");
  if (!traits(device->kind).rbd_nbd || std::none_of(view.seen.mounts.begin(), view.seen.mounts.end(), of_device))
    return std::nullopt;
  if (!view.seen.facts.served_by_other) return look(Fact::served_by_other);
  if (*view.seen.facts.served_by_other) return std::nullopt;
  return refuse(errc::unavailable,
                foreign(view, "ceph-csi left no image-meta.json; it is unserved, so an umount would never end"));
}

/// A device without a server would block its umount.
std::optional<Decision> needs_daemon(const Situation& view) {
  if (!view.seen.facts.served_by_other) return look(Fact::served_by_other);
  if (*view.seen.facts.served_by_other) return std::nullopt;
  return refuse(errc::unavailable, "rbd-nbd, which served volume " + view.id +
                                       ", is dead, so an umount would never end. Its stage brings its key, and this "
                                       "agent then serves it: " +
                                       kStageAgain);
}

/// Notes that an rbd-nbd of this node died. Unless it is known to have had no cache, its device's next flush must fail.
/// That is on the disk before anything of that client is removed, because its lock shows how it ended. A device with
/// this agent's timeout was last served by corbd, whose client is not known any more: rbd-nbd sets its own, unless the
/// volume's attributes give it the same.
std::optional<Step> note_lost_cache(const Situation& view) {
  const Record& record = *view.record;
  const auto* device = view.seen.device();
  if (record.cache_lost || record.use.read_only || record.source.serving.cache_off || device == nullptr ||
      (device->io_timeout_ms == kIoTimeoutMs && !record.source.serving.same_timeout))
    return std::nullopt;
  step::WriteRecord step{record};
  step.record.cache_lost = true;
  return step;
}

/// Whether rbd-nbd ended cleanly. A clean end closes the image, which writes the cache and releases the lock. Without
/// that feature only the watch shows it, for as long as a dead client's watch would last.
bool ended_cleanly(const Situation& view, bool just_died) {
  const auto& who = *view.seen.facts.ownership;
  const auto here = [&](const auto& watcher) {
    return on_this_node(who, watcher) && watcher != view.record->adopting->uncached;
  };
  return view.seen.exclusive_lock || view.seen.facts.dismissed ||
         (just_died && std::ranges::none_of(who.foreign_watchers, here));
}

}  // namespace

bool watches(const image::Ownership& who, const std::string& address) {
  return std::find(who.foreign_watchers.begin(), who.foreign_watchers.end(), address) != who.foreign_watchers.end();
}

bool on_this_node(const image::Ownership& who, const std::string& address) {
  return image::host_of(address) == image::host_of(who.self);
}

bool left_by_this_node(const Situation& view) {
  const auto& who = *view.seen.facts.ownership;
  return who.lock == image::Ownership::Lock::other && on_this_node(who, who.owner) && !watches(who, who.owner);
}

Step inherit(const Situation& view) {
  // A client that serves the device after another takes the lock from it to write. If that client has it, nobody did.
  const std::string& owner = view.seen.facts.ownership->owner;
  const auto& adopting = view.record->adopting;
  if (!adopting || adopting->uncached != owner)
    if (auto step = note_lost_cache(view)) return *step;
  return step::Inherit{owner};
}

std::optional<Step> note_uncached(const Situation& view) {
  const auto& who = view.seen.facts.uncached;
  if (!who) return std::nullopt;
  // This client has the image open. A second client of the node, or another owner, may be the one.
  std::string client;
  for (const auto& watcher : who->foreign_watchers) {
    if (!on_this_node(*who, watcher)) continue;
    if (!client.empty()) return std::nullopt;
    client = watcher;
  }
  if (client.empty() || client == view.record->adopting->uncached || (!who->owner.empty() && who->owner != client))
    return std::nullopt;
  step::WriteRecord step{*view.record};
  step.record.adopting->uncached = client;
  step.may_fail = true;
  return step;
}

std::optional<Decision> prove_beside(const Situation& view, const std::string& uid) {
  if (view.record->proof.reattached_as != uid) {
    step::WriteRecord step{*view.record};
    step.record.proof.reattached_as = uid;
    step.may_fail = true;
    return step;
  }
  const auto& who = view.seen.facts.beside;
  if (!who) return look(Fact::beside);
  // A client that was cut off has lost its lock. A watch alone may be younger than another node's visit.
  const bool holds =
      who->lock == image::Ownership::Lock::other && on_this_node(*who, who->owner) && watches(*who, who->owner);
  if (!holds)
    return refuse(errc::failed_precondition,
                  image_of(view) +
                      " was attached to this node again while rbd-nbd serves it without its lock: another client may "
                      "have written in between. Once rbd-nbd has ended, and if no other node used the image: `corbd "
                      "heal " +
                      view.id + " --without-proof`");
  if (who->foreign_watchers.size() > 1)
    return refuse(errc::unavailable, image_of(view) +
                                         " was attached to this node again, and another client than "
                                         "rbd-nbd has it open now");
  return std::nullopt;
}

std::optional<Decision> has_cache_after_all(const Situation& view) {
  const auto& refused = view.seen.facts.unsafe_config;
  if (!refused) return std::nullopt;
  if (view.seen.facts.served_by_other == true || view.record->cache_lost || view.record->use.read_only ||
      !view.record->source.serving.cache_off)
    return refuse(*refused);
  step::WriteRecord step{*view.record};
  step.record.cache_lost = true;
  step.record.source.serving.cache_off = false;
  return Step(std::move(step));
}

Decision close_for_other(const Situation& view) {
  const auto* device = view.seen.device();
  if (view.seen.link != Observation::Link::none) return Step(step::StopSession{});
  if (view.seen.image_open) return Step(step::CloseImage{});
  if (!view.seen.facts.stash) return look(Fact::stash);
  const auto& stash = *view.seen.facts.stash;
  if (stash && stash->nbd == traits(device->kind).rbd_nbd && stash->device == device::path(*device))
    return Step(step::DropRecord{});
  return refuse(errc::failed_precondition, device::path(*device) + " carries the id of volume " + view.id +
                                               " but its record names " +
                                               device::path(*view.record->device.index, device->kind) +
                                               ", and no image-meta.json of ceph-csi names " + device::path(*device) +
                                               ": disconnect it with the tool that made it");
}

bool has_other_stash(const Situation& view) {
  const auto* device = view.seen.device();
  const auto& stash = view.seen.facts.stash;
  const bool was_signed =
      !view.record->proof.attachment_uid.empty() && view.record->proof.signed_as == view.record->proof.attachment_uid;
  return device != nullptr && was_signed && stash && *stash && (*stash)->nbd &&
         (*stash)->device == device::path(*device) && (*stash)->attachment != view.record->proof.attachment_uid;
}

bool is_restaged(const Situation& view) {
  const auto& attachment = view.seen.facts.attachment;
  return has_other_stash(view) && attachment && attachment->state == Attachment::State::here &&
         attachment->uid != view.record->proof.attachment_uid;
}

std::optional<Step> ask_restaged(const Situation& view) {
  if (view.record->proof.signed_as.empty() || view.seen.device() == nullptr) return std::nullopt;
  if (!view.seen.facts.stash) return look(Fact::stash);
  if (has_other_stash(view) && !view.seen.facts.attachment) return look(Fact::attachment);
  return std::nullopt;
}

Decision close_if_unstaged(const Situation& view) {
  // This agent has a link or an image, so the device went away under it, and its pods must notice.
  if (!view.record->device.index || !view.seen.mounts.empty() || view.seen.link != Observation::Link::none ||
      view.seen.image_open)
    return Done{};
  if (!view.seen.facts.stash) return look(Fact::stash);
  if (*view.seen.facts.stash) return Done{};
  return Step(step::DropRecord{});
}

std::optional<Decision> yield_to_other(const Situation& view) {
  const auto& who = *view.seen.facts.ownership;
  const bool by_owner = who.lock == image::Ownership::Lock::other && on_this_node(who, who.owner);
  if (!by_owner &&
      std::ranges::none_of(who.foreign_watchers, [&](const auto& watcher) { return on_this_node(who, watcher); }))
    return std::nullopt;
  if (!view.seen.facts.served_by_other) return look(Fact::served_by_other);
  if (!*view.seen.facts.served_by_other) return std::nullopt;
  if (auto step = ask_restaged(view)) return step;
  step::WriteRecord step{*view.record};
  step.record.adopting.emplace();
  step.record.proof.operator_override = false;  // its lock is rbd-nbd's now
  step.record.proof.modified.reset();
  step.record.format.reset();
  return step;
}

Decision adopt(const Situation& view, const Staged& wish) {
  const auto* device = view.seen.device();
  if (!view.seen.facts.stash) return look(Fact::stash);
  const auto& stash = *view.seen.facts.stash;
  if (!stash)
    return refuse(errc::failed_precondition, foreign(view, "ceph-csi left no image-meta.json at " + wish.path));
  if (!view.seen.facts.resolved) return look(Fact::resolved);
  const auto& image = *view.seen.facts.resolved;
  if (const std::string why = mismatch(*stash, *device, image); !why.empty())
    return refuse(errc::failed_precondition, foreign(view, why));
  if (!view.seen.image_writer.empty() || !view.seen.image_reader.empty())
    return refuse(errc::in_use, "another volume of this node has the image " + image_text(image.name, image.key) +
                                    " of volume " + view.id + ": unstage that one first");
  if (image.size < device->size)
    return refuse(errc::failed_precondition, foreign(view, "it has " + std::to_string(device->size) +
                                                               " bytes, the image " + std::to_string(image.size)));
  const std::string target = staging_target(view.id, wish.path);
  Staging staging{wish.path, with_fstype(wish.capability)};
  const bool by_default = (wish.mounter == Mounter::nbd) == traits(device->kind).served;
  if (!by_default) staging.capability.read_only = wish.read_only_otherwise.value_or(wish.capability.read_only);
  step::WriteRecord step{new_record(view, wish, image)};
  Record& record = step.record;
  record.device.size = device->size;
  record.use.read_only = staging.capability.read_only;
  for (const auto& mount : view.seen.mounts) {
    if (mount.target == target && !shows(mount, *device, view.id))
      return refuse(errc::failed_precondition,
                    "something else is mounted at " + target + " and volume " + view.id + " has no record: unmount it");
    if (mount.target == target) {
      staging.complete = true;
      if (!wish.capability.block) staging.capability.fstype = mount.fstype;
    } else if (shows(mount, *device, view.id) && !goes_with_mount_at(view, mount, target)) {
      record.publishes.push_back({mount.target, wish.path, mount.read_only});
    }
  }
  record.device.kind = device->kind;
  record.device.index = device->index;
  if (traits(device->kind).rbd_nbd) record.adopting.emplace();
  // Its record was removed since. Nothing else shows what its last rbd-nbd lost.
  record.cache_lost = record.adopting && stash->cache_lost;
  record.stagings.push_back(std::move(staging));
  return step;
}

std::optional<Decision> unstage_other(const Situation& view, const std::string& target) {
  if (!view.seen.facts.stash) return look(Fact::stash);
  const auto& stash = *view.seen.facts.stash;
  const auto* device = view.seen.device();
  if (!stash) return device == nullptr ? std::nullopt : umount_unknown(view, target);
  if (device == nullptr) return std::nullopt;
  if (view.seen.facts.disconnected) return until_closed(view);
  if (stash->nbd != traits(device->kind).rbd_nbd)
    return refuse(errc::failed_precondition,
                  foreign(view, "ceph-csi's image-meta.json says that the kernel's rbd mapped it"));
  if (!stash->device.empty() && stash->device != device::path(*device))
    return refuse(errc::failed_precondition, foreign(view, "ceph-csi's image-meta.json names " + stash->device));
  if (traits(device->kind).rbd_nbd)
    if (auto refused = needs_daemon(view)) return refused;
  if (auto refused = refuse_mounted(view, target)) return refused;
  if (our_mount_at(view, target) != nullptr) return std::nullopt;
  if (auto held = refuse_held(view, *device, stash->encrypted)) return held;
  if (stash->encrypted && top_mapping(*device, view.id) != nullptr) return Step(step::LuksClose{});
  if (view.seen.facts.unused != true) return look(Fact::unused);
  return remove_device(device->kind);
}

std::optional<Decision> end_other_client(const Situation& view) {
  if (view.seen.facts.served_by_other == true) return dismiss(view);
  const auto& who = *view.seen.facts.ownership;
  // The process is gone. A watch that stays longer is a living client's.
  const bool just_died = view.seen.other_dead_for && *view.seen.other_dead_for < kWatchStands;
  if (who.lock != image::Ownership::Lock::other || !on_this_node(who, who.owner))
    return ended_cleanly(view, just_died) ? std::nullopt : std::optional<Decision>(note_lost_cache(view));
  if (watches(who, who.owner) && !just_died)
    return Wait{"the cluster still sees the client at " + who.owner + ", which locks " + image_of(view) +
                ": that ends 30 s after rbd-nbd's death"};
  if (auto step = ask_restaged(view)) return step;
  return inherit(view);
}

}  // namespace corbd::plan
