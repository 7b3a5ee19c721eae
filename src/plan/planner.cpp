#include "corbd/plan/planner.hpp"

#include <algorithm>

#include "corbd/core/utc.hpp"
#include "device.hpp"
#include "expand.hpp"
#include "filesystem.hpp"
#include "krbd.hpp"
#include "luks.hpp"
#include "note.hpp"
#include "stash.hpp"

namespace corbd::plan {
namespace {

constexpr std::uint64_t kMinBytes = 1 << 20;

bool mounted_at(const View& view, const std::string& path) {
  return std::any_of(view.seen.mounts.begin(), view.seen.mounts.end(),
                     [&](const auto& mount) { return mount.target == path; });
}

bool ours_at(const View& view, const std::string& path) { return our_mount_at(view, path) != nullptr; }

const Staging* staging_at(const Record& record, const std::string& path) {
  const auto place = std::find_if(record.stagings.begin(), record.stagings.end(),
                                  [&](const auto& staging) { return staging.path == path; });
  return place == record.stagings.end() ? nullptr : &*place;
}

Step write(Record record) { return step::WriteRecord{std::move(record)}; }

// --- Staged -------------------------------------------------------------------------------------

/// Other volumes of this node on the same image: readers may be several, but only one of them the kernel's, whose
/// device has no identifier.
std::optional<Decision> refuse_neighbours(const View& view, const Staged& wish) {
  if (!view.seen.facts.resolved) return std::nullopt;
  const bool readers_mix = wish.capability.read_only && wish.mounter == Mounter::nbd;
  const std::string& other =
      readers_mix || !view.seen.image_writer.empty() ? view.seen.image_writer : view.seen.image_reader;
  if (other.empty()) return std::nullopt;
  return fail(errc::in_use, "volume " + other + " of this node has the image " + view.seen.facts.resolved->key.text() +
                                " of volume " + view.id + ": unstage that one first");
}

Decision stage_new(const View& view, const Staged& wish) {
  if (auto refused = refuse_neighbours(view, wish)) return *refused;
  if (!view.seen.devices.empty()) return adopt(view, wish);
  if (mounted_at(view, staging_target(view.id, wish.path))) {
    // Without an identifier of its own the kernel's device is found by what ceph-csi left.
    if (!view.seen.facts.stash) return look(Fact::stash);
    return fail(errc::failed_precondition, "something else is mounted at " + staging_target(view.id, wish.path) +
                                               " and volume " + view.id + " has no record: unmount it");
  }
  if (!view.seen.facts.resolved) return look(Fact::resolved);
  if (view.seen.facts.resolved->size < kMinBytes)
    return fail(errc::failed_precondition, "image " + view.seen.facts.resolved->key.text() + " of volume " + view.id +
                                               " has " + std::to_string(view.seen.facts.resolved->size) +
                                               " bytes, less than 1 MiB: grow it");
  const auto kind = choose_kind(wish.mounter, view.seen.facts.resolved->features, view.seen.kernel_features);
  if (!kind) return fail(kind.error().code, "volume " + view.id + ": " + kind.error().text);
  Record record;
  record.kind = *kind;
  record.volume_id = view.id;
  record.driver = view.policy.driver;
  record.source = found_at(wish.source, *view.seen.facts.resolved);
  record.user = wish.user;
  record.key = view.seen.facts.resolved->key;
  record.kms_id = view.seen.facts.resolved->kms_id;
  record.size = view.seen.facts.resolved->size;
  record.exclusive_lock = view.seen.facts.resolved->exclusive_lock;
  record.block = wish.capability.block;
  record.read_only = wish.capability.read_only;
  record.provisioned = wish.reserved.has_value();
  record.attachment_uid = wish.attachment.uid;
  record.shared = wish.capability.shared;
  record.boot_id = view.seen.boot_id;
  record.stagings.push_back({wish.path, wish.capability});
  return write(std::move(record));
}

/// "a read-only filesystem ext4 at /path"
std::string use_of(const Record& record, const std::string& fstype) {
  const std::string how = record.read_only ? "read-only " : record.shared ? "shared " : "";
  std::string where = "no path any more";
  if (!record.stagings.empty())
    where = record.stagings.front().path;
  else if (!record.publishes.empty())
    where = record.publishes.front().target;
  return "a " + how + (record.block ? "block device" : "filesystem " + fstype) + " at " + where;
}

/// The wish's capability as the client that serves the volume has it: another default mounter reads other map options.
template <class Wished>
Capability as_served(const Record& record, const Wished& wish) {
  Capability wanted = wish.capability;
  if (wish.read_only_otherwise == record.read_only) wanted.read_only = record.read_only;
  return wanted;
}

/// One device serves all staging paths of its volume, so they must use it alike.
Decision stage_another(const View& view, const Staged& wish) {
  const Record& record = *view.record;
  const Capability wanted = as_served(record, wish);
  const std::string fstype = record.stagings.empty() ? wanted.fstype : record.stagings.front().capability.fstype;
  if (record.block != wanted.block || record.read_only != wanted.read_only || record.shared != wanted.shared ||
      fstype != wanted.fstype)
    return fail(errc::failed_precondition, "volume " + view.id + " is in use as " + use_of(record, fstype) +
                                               ": unstage and unpublish it there first");
  if (mounted_at(view, staging_target(view.id, wish.path)))
    return fail(errc::failed_precondition,
                "something else is mounted at " + staging_target(view.id, wish.path) + ": unmount it");
  Record more = record;
  more.stagings.push_back({wish.path, wanted});
  return write(std::move(more));
}

Decision stage(const View& view, const Staged& wish) {
  if (!view.record) return stage_new(view, wish);
  const Record& record = *view.record;
  const Staging* staging = staging_at(record, wish.path);
  if (staging == nullptr) return stage_another(view, wish);
  const Capability& capability = staging->capability;
  if (capability != as_served(record, wish))
    return fail(errc::already_exists,
                "volume " + view.id + " is staged at " + wish.path + " with another capability: unstage it first");
  if (record.failed) return given_up(view);
  const std::string target = staging_target(view.id, wish.path);
  if (!staging->complete || !mounted_at(view, target))
    if (auto step = keep_stash(view, wish)) return *step;
  if (auto step = bring_up(view)) return *step;
  if (auto step = settle_krbd(view, *staging)) return *step;
  if (mounted_at(view, target) && !ours_at(view, target))
    return fail(errc::failed_precondition, "something else is mounted at " + target + ": unmount it");
  if (!mounted_at(view, target)) {
    if (auto step = open_mapping(view)) return *step;
    if (capability.block) return step::Bind{target};
    return make_filesystem(view, target, capability);
  }
  if (staging->complete) return leave_to_kernel(view);
  if (auto step = fill_mapping(view)) return *step;
  if (!capability.block)
    if (auto step = fill_device(view, *our_mount_at(view, target))) return *step;
  // Also of a raw block volume: what a pod writes into it shows no filesystem, and must not pass for a format that did
  // not end. While rbd-nbd serves it no image is open here, and this record never began a format.
  const bool served_elsewhere = record.adopting && !view.seen.image_open;
  if (!capability.read_only && !served_elsewhere) {
    if (!view.seen.facts.format_marker) return look(Fact::format_marker);
    if (!view.seen.facts.format_marker->empty()) return Step(step::Unmark{});
  }
  Record staged = record;
  staged.format.clear();
  staged.format_version.reset();
  staged.stagings[static_cast<std::size_t>(staging - record.stagings.data())].complete = true;
  return write(std::move(staged));
}

// --- Published, Unpublished ---------------------------------------------------------------------

/// Mount flags may differ: a bind has its own.
bool same_use(const Capability& one, const Capability& other) {
  return one.block == other.block && one.fstype == other.fstype && one.read_only == other.read_only &&
         one.single_writer == other.single_writer && one.shared == other.shared;
}

Decision publish(const View& view, const Published& wish) {
  const std::string source = staging_target(view.id, wish.path);
  const Staging* staging = view.record ? staging_at(*view.record, wish.path) : nullptr;
  if (staging == nullptr || !staging->complete || !ours_at(view, source))
    return fail(errc::failed_precondition, "volume " + view.id + " is not staged at " + wish.path + ": stage it first");
  if (view.record->failed) return given_up(view);
  if (auto step = bring_up(view)) return *step;
  const Publish wanted{wish.target, wish.path, wish.read_only};
  const auto& publishes = view.record->publishes;
  const auto known =
      std::find_if(publishes.begin(), publishes.end(), [&](const auto& entry) { return entry.target == wish.target; });
  const bool other_use = !same_use(staging->capability, as_served(*view.record, wish));
  if (known != publishes.end() && (*known != wanted || other_use))
    return fail(errc::already_exists,
                "volume " + view.id + " is published at " + wish.target + " with other arguments: unpublish it first");
  if (other_use)
    return fail(errc::failed_precondition, "volume " + view.id + " is staged at " + wish.path +
                                               " with another capability: publish it with that one");
  if (known == publishes.end()) {
    if (wish.capability.single_writer && !publishes.empty())
      return fail(errc::failed_precondition, "volume " + view.id + " is for one pod only and published at " +
                                                 publishes.front().target + ": unpublish it there first");
    if (mounted_at(view, wish.target))
      return fail(errc::failed_precondition, "something else is mounted at " + wish.target + ": unmount it");
    Record record = *view.record;
    record.publishes.push_back(wanted);
    return write(std::move(record));
  }
  if (ours_at(view, wish.target)) return Done{};
  if (mounted_at(view, wish.target))
    return fail(errc::failed_precondition, "something else is mounted at " + wish.target + ": unmount it");
  return step::Bind{wish.target};
}

/// Whether a filesystem of the device stays mounted at another path.
bool mounted_elsewhere(const View& view, const std::string& path) {
  const auto* device = view.seen.device();
  return device != nullptr && std::ranges::any_of(view.seen.mounts, [&](const auto& mount) {
           return mount.target != path && mount.fstype != "devtmpfs" && shows(mount, *device) &&
                  !goes_with_mount_at(view, mount, path);
         });
}

/// The mount at the path and what it was made on: a power loss, or a death in between, leaves only that, and nobody
/// else removes it (CSI: the plugin MUST delete the target).
template <class Leave>
std::optional<Decision> clear_path(const View& view, const std::string& path) {
  Leave step{path};
  if (!mounted_at(view, path))
    return view.seen.facts.cleared.contains(path) ? std::nullopt : std::optional<Decision>(std::move(step));
  // The last mount of a filesystem writes what that owes, and would hold the helper while its device has no link; one
  // that is disconnected gives errors at once. Any other mount, or that of a device's node, touches nothing.
  const auto is_node = [&](const auto& mount) { return mount.target == path && mount.fstype == "devtmpfs"; };
  step.sync = !mounted_elsewhere(view, path) && std::ranges::none_of(view.seen.mounts, is_node);
  if (step.sync && view.record && ours_at(view, path) && !view.seen.facts.disconnected)
    if (auto first = bring_up(view)) return first;
  return step;
}

/// What another volume has there is not unmounted, nor is its stash dropped.
std::optional<Decision> refuse_path(const View& view, const std::string& path) {
  if (view.seen.path_owner.empty()) return std::nullopt;
  return fail(errc::failed_precondition, path + " is a path of volume " + view.seen.path_owner + ", not of volume " +
                                             view.id + ": nothing was done there");
}

/// Everything down once nothing uses the device: no staging, no publish, no mount, no holder.
Decision take_down(const View& view) {
  const auto* device = view.seen.device();
  if (device != nullptr) {
    for (const auto& mount : view.seen.mounts)
      if (shows(mount, *device)) return Done{};  // the last unpublish comes here again
    for (const auto& holder : device->holders)
      if (view.record->kms_id.empty() || &holder != mapping_of(*device))
        return fail(errc::in_use, device::path(*device) + " of volume " + view.id + " is used by " +
                                      (holder.mapping.empty() ? holder.name : holder.mapping));
    if (auto step = close_mapping(view)) return *step;
    if (view.seen.facts.disconnected) return until_closed(view);
    if (view.seen.facts.unused != true) {
      if (auto step = bring_up(view)) return *step;
      return look(Fact::unused);
    }
    return by_kernel(view) ? Step(step::UnmapKrbd{}) : Step(step::Disconnect{});
  }
  // Here, too, the last unpublish comes again. Until then the record keeps the number from other volumes.
  for (const auto& publish : view.record->publishes)
    if (shows_device_that_is_gone(view, publish.target)) return Done{};
  if (view.seen.link != Observation::Link::none) return Step(step::StopSession{});
  if (view.seen.image_open) return Step(step::CloseImage{});
  return Step(step::DropRecord{});
}

Decision unpublish(const View& view, const Unpublished& wish) {
  if (auto refused = refuse_path(view, wish.target)) return *refused;
  if (mounted_at(view, wish.target) && view.record && view.seen.device() != nullptr && !ours_at(view, wish.target))
    return fail(errc::failed_precondition,
                "something else is mounted at " + wish.target + ", not volume " + view.id + ": unmount it");
  if (auto step = clear_path<step::Unbind>(view, wish.target)) return *step;
  if (!view.record) return Done{};
  const auto& publishes = view.record->publishes;
  if (std::any_of(publishes.begin(), publishes.end(), [&](const auto& entry) { return entry.target == wish.target; })) {
    Record record = *view.record;
    std::erase_if(record.publishes, [&](const auto& entry) { return entry.target == wish.target; });
    return write(std::move(record));
  }
  if (view.record->stagings.empty()) return take_down(view);
  return Done{};
}

// --- Unstaged, Healed ---------------------------------------------------------------------------

/// A pod keeps the device, its watch and its lock here, while the orchestrator would take the volume for free. Only
/// what is mounted counts: a reboot, or whoever removed a pod's folder, leaves the record behind.
std::optional<Decision> refuse_published(const View& view, const Unstaged& wish) {
  const Record& record = *view.record;
  const auto refused = [&](const std::string& target) {
    return fail(errc::failed_precondition,
                "volume " + view.id + " is still published at " + target + ": unpublish it there, then unstage it");
  };
  for (const auto& publish : record.publishes)
    if (publish.staging == wish.path &&
        (ours_at(view, publish.target) || shows_device_that_is_gone(view, publish.target)))
      return refused(publish.target);
  const auto other = [&](const Staging& staging) { return staging.path != wish.path; };
  if (view.seen.device() == nullptr || std::ranges::any_of(record.stagings, other)) return std::nullopt;
  return refuse_mounted(view, staging_target(view.id, wish.path));
}

Decision unstage(const View& view, const Unstaged& wish) {
  const std::string target = staging_target(view.id, wish.path);
  if (auto refused = refuse_path(view, wish.path)) return *refused;
  if (auto step = view.record ? refuse_published(view, wish) : unstage_other(view, target)) return *step;
  if (auto step = clear_path<step::Umount>(view, target)) return *step;
  if (!view.record) return without_stash(view, wish, Done{});
  Record record = *view.record;
  std::erase_if(record.stagings, [&](const Staging& staging) { return staging.path == wish.path; });
  std::erase_if(record.publishes, [&](const Publish& publish) { return publish.staging == wish.path; });
  if (record != *view.record) return write(std::move(record));
  if (!record.stagings.empty()) return without_stash(view, wish, Done{});
  Decision down = take_down(view);
  const auto* step = std::get_if<Step>(&down);
  const bool last =
      std::holds_alternative<Done>(down) || (step != nullptr && std::holds_alternative<step::DropRecord>(*step));
  return last ? without_stash(view, wish, std::move(down)) : down;
}

Decision heal(const View& view) {
  if (!view.record) return Done{};
  if (view.seen.devices.empty())
    return close_if_unstaged(view);  // nothing to serve; the next stage or unstage goes on from here
  if (auto step = bring_up(view)) return *step;
  if (auto step = renew_note(view)) return *step;
  return Done{};
}

/// Of a device that nobody serves it would prove what nobody saw.
/// Known only once the stash has it: what is there without it then was written by somebody else.
Decision note_signature(const View& view) {
  const auto& stash = view.seen.facts.stash;
  const Record& record = *view.record;
  if (!stash || !*stash || (*stash)->attachment != record.attachment_uid || record.signed_as == record.attachment_uid)
    return Done{};
  step::WriteRecord step{record};
  step.record.signed_as = record.attachment_uid;
  return step;
}

Decision attach(const View& view, const Attached& wish) {
  if (!view.record) return Done{};
  const bool noted = view.record->attachment_uid == wish.uid;
  const bool by_other =
      view.record->adopting && view.seen.link == Observation::Link::none && view.seen.device() != nullptr;
  if (by_other && !view.seen.facts.served_by_other) return look(Fact::served_by_other);
  const bool served = by_kernel(view) || (by_other ? *view.seen.facts.served_by_other
                                                   : view.seen.link == Observation::Link::serving &&
                                                         view.seen.attached && !view.record->failed);
  if (noted) {
    if (!served) return Done{};
    if (auto step = sign_stash(view)) return *step;
    return note_signature(view);
  }
  if (!served) return fail(errc::unavailable, "volume " + view.id + " is not served now");
  Record record = *view.record;
  record.attachment_uid = wish.uid;
  return write(std::move(record));
}

Decision give_up(const View& view) {
  if (!view.record || view.seen.devices.empty())
    return fail(errc::failed_precondition, "volume " + view.id + " has no device here: there is nothing to give up");
  if (view.record->failed) return heal(view);
  if (by_kernel(view))
    return fail(errc::failed_precondition, "the kernel itself serves volume " + view.id +
                                               ": it cannot be given up here; see `rbd unmap -o force`");
  Record record = *view.record;
  record.failed = true;
  return write(std::move(record));
}

Decision decide(const View& view, const Wish& wish) {
  const auto& volume_id = view.id;
  const auto& record = view.record;
  const auto& seen = view.seen;
  // What is true of the device now need not be so a moment later: it may be disconnected below what would be mounted.
  if (seen.command)
    return Wait{seen.command->what + " of volume " + volume_id + " is under way in the kernel since " +
                utc_text(seen.command->since)};
  if (seen.devices.size() > 1)
    return fail(errc::failed_precondition, std::to_string(seen.devices.size()) + " devices carry the id of volume " +
                                               volume_id + ": disconnect the one that is not in use");
  const bool heals = std::holds_alternative<Healed>(wish) || std::holds_alternative<Adopted>(wish) ||
                     std::holds_alternative<Failed>(wish);
  // Healing never waits for a helper: the helper may be waiting for the healing.
  if (seen.busy && !heals && (by_kernel(view) || (seen.attached && seen.link == Observation::Link::serving)))
    return Wait{"a helper still works on volume " + volume_id};
  // It may mount yet what is unmounted now.
  const bool takes_down = std::holds_alternative<Unpublished>(wish) || std::holds_alternative<Unstaged>(wish);
  if (seen.busy && takes_down)
    return fail(errc::unavailable, "a helper still works on volume " + volume_id +
                                       ", whose device has no server now: repeat when it is healed");
  const bool of_earlier_boot = record && record->boot_id != seen.boot_id;
  // What it tells of is gone: a device that is there is another's, of whom the stash tells.
  if (of_earlier_boot && seen.link == Observation::Link::none && !seen.image_open) return Step(step::DropRecord{});
  struct Visit {
    const View& view;
    Decision operator()(const Staged& wanted) const { return stage(view, wanted); }
    Decision operator()(const Unstaged& wanted) const { return unstage(view, wanted); }
    Decision operator()(const Published& wanted) const { return publish(view, wanted); }
    Decision operator()(const Unpublished& wanted) const { return unpublish(view, wanted); }
    Decision operator()(const Healed& wanted) const {
      return wanted.vouched && view.record && view.record->failed ? given_up(view) : heal(view);
    }
    Decision operator()(const Adopted&) const { return heal(view); }
    Decision operator()(const Failed&) const { return give_up(view); }
    Decision operator()(const Expanded& wanted) const { return expand(view, wanted); }
    Decision operator()(const Rekeyed&) const { return rekey(view); }
    Decision operator()(const Trimmed& wanted) const { return trim(view, wanted); }
    Decision operator()(const Attached& wanted) const { return attach(view, wanted); }
  };
  return std::visit(Visit{view}, wish);
}

/// What was only looked at, and is another's to use or may be.
bool leaves(const View& view, errc why) {
  const Observation& seen = view.seen;
  // To close it would give back the lock, which is the proof that it is ours, unless it was taken on a mere word.
  const bool ours =
      (seen.lock_held || (seen.facts.ownership && seen.facts.ownership->lock == image::Ownership::Lock::mine)) &&
      !(view.record && view.record->on_word);
  return !ours && seen.image_open && !seen.tombstone && seen.link == Observation::Link::none &&
         (why == errc::in_use || why == errc::unproven || why == errc::lost);
}

}  // namespace

Decision decide(const std::string& volume_id, const std::optional<Record>& record, const Wish& wish,
                const Observation& seen, const Policy& policy) {
  const auto* healed = std::get_if<Healed>(&wish);
  const View view{
      volume_id, record, seen, policy, std::holds_alternative<Adopted>(wish), healed != nullptr && healed->vouched};
  Decision decision = decide(view, wish);
  if (auto* failed = std::get_if<Fail>(&decision)) failed->leaves = leaves(view, failed->error.code);
  return decision;
}

}  // namespace corbd::plan
