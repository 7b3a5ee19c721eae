#include "take_down.hpp"

#include <algorithm>
#include <filesystem>

#include "adopt.hpp"
#include "bring_up.hpp"
#include "freeze.hpp"
#include "fscrypt.hpp"
#include "krbd.hpp"
#include "luks.hpp"
#include "paths.hpp"
#include "stash.hpp"

namespace corbd::plan {
namespace {

/// Whether a filesystem of the device stays mounted at another path.
bool mounted_elsewhere(const Situation& view, const std::string& path) {
  const auto* device = view.seen.device();
  return device != nullptr && std::ranges::any_of(view.seen.mounts, [&](const auto& mount) {
           return mount.target != path && mount.fstype != "devtmpfs" && shows(mount, *device, view.id) &&
                  !goes_with_mount_at(view, mount, path);
         });
}

/// Unmounts the path, and removes the folder or file on which the mount was made. A power loss, or a death in between,
/// leaves only the latter, and nobody else removes that (CSI: the plugin MUST delete the target).
template <class Leave>
std::optional<Decision> clear_path(const Situation& view, const std::string& path) {
  Leave step{path};
  if (!mounted_at(view, path))
    return view.seen.facts.cleared.contains(path) ? std::nullopt : std::optional<Decision>(std::move(step));
  // The last umount of a filesystem writes its dirty pages, and would block the helper while the device has no link. A
  // disconnected device fails at once. Any other umount, or that of a device's node, writes nothing.
  const auto is_node = [&](const auto& mount) { return mount.target == path && mount.fstype == "devtmpfs"; };
  step.sync = !mounted_elsewhere(view, path) && std::ranges::none_of(view.seen.mounts, is_node);
  if (step.sync && view.record && ours_at(view, path) && !view.seen.facts.disconnected)
    if (auto first = bring_up(view)) return first;
  if (step.sync && ours_at(view, path))
    if (auto first = thaw_before_end(view)) return first;
  return step;
}

/// Refuses a path whose mount and stash are another volume's.
std::optional<Decision> refuse_path(const Situation& view, const std::string& path) {
  if (view.seen.path_owner.empty()) return std::nullopt;
  return refuse(errc::failed_precondition, path + " is a path of volume " + view.seen.path_owner + ", not of volume " +
                                               view.id + ": nothing was done there");
}

/// Removes the device once nothing uses it: no mount, no holder.
Decision take_device_down(const Situation& view, const device::Seen& device) {
  for (const auto& mount : view.seen.mounts)
    if (shows(mount, device, view.id)) return Done{};  // the last unpublish reaches this again
  if (auto refused = refuse_held(view, device, view.record->encrypts_device())) return *refused;
  if (auto step = close_mapping(view)) return *step;
  // The next user of the number may be another program, which leaves it as read-only as it is.
  if (view.record->damaged && !view.seen.facts.disconnected) {
    Record record = *view.record;
    record.damaged = false;
    return write(std::move(record));
  }
  if (view.seen.facts.disconnected) return until_closed(view);
  if (view.seen.facts.unused == true) return remove_device(device.kind);
  if (auto step = bring_up(view)) return *step;
  return look(Fact::unused);
}

/// Removes everything of a volume without staging and publish.
Decision take_down(const Situation& view) {
  if (const auto* device = view.seen.device()) return take_device_down(view, *device);
  // The last unpublish reaches this again, too. Until then the record reserves the number.
  for (const auto& publish : view.record->publishes)
    if (shows_device_that_is_gone(view, publish.target)) return Done{};
  if (view.seen.link != Observation::Link::none) return Step(step::StopSession{});
  if (view.seen.image_open) return Step(step::CloseImage{});
  return Step(step::DropRecord{});
}

/// Refuses: a pod keeps the device, its watch and its lock here, while the orchestrator would take the volume for free.
std::optional<Decision> refuse_published(const Situation& view, const Unstaged& wish) {
  const Record& record = *view.record;
  const auto refused = [&](const std::string& target) {
    return refuse(errc::failed_precondition,
                  "volume " + view.id + " is still published at " + target + ": unpublish it there, then unstage it");
  };
  for (const auto& publish : record.publishes)
    if (publish.staging == wish.path && is_there(view, publish)) return refused(publish.target);
  const auto other = [&](const Staging& staging) { return staging.path != wish.path; };
  if (view.seen.device() == nullptr || std::ranges::any_of(record.stagings, other)) return std::nullopt;
  return refuse_mounted(view, staging_target(view.id, wish.path));
}

/// Whether the first path is kubelet's form before 1.24, and the second one its form since.
bool is_outdated_by_kubelet(std::string_view old, std::string_view path) {
  constexpr std::string_view plugins = "/kubernetes.io/csi/", outdated = "/kubernetes.io/csi/pv/";
  const auto at = old.find(outdated);
  return at != old.npos && path.starts_with(old.substr(0, at)) && path.substr(at).starts_with(plugins) &&
         !path.substr(at).starts_with(outdated);
}

/// Whether the first path, .../staging/VOLUME/USAGE, is Nomad's form from before its staging paths had a namespace, and
/// the second one, .../staging/NAMESPACE/VOLUME/USAGE, its form since.
bool is_outdated_by_nomad(const std::filesystem::path& old, const std::filesystem::path& path) {
  const auto volume = old.parent_path(), named = path.parent_path();
  return path.filename() == old.filename() && named.filename() == volume.filename() &&
         volume.parent_path().filename() == "staging" && named.parent_path().parent_path() == volume.parent_path();
}

bool is_outdated_by(const std::string& old, const std::string& path) {
  return is_outdated_by_kubelet(old, path) || is_outdated_by_nomad(old, path);
}

/// Finds the staging at an outdated path. An orchestrator that was upgraded under running pods staged the volume at a
/// path of the new form as well, and never names the old one again (docs/sources.md#kubelet-paths, #nomad). The old one
/// goes with the new one: otherwise it would keep device and lock here after an unstage that the orchestrator takes for
/// the last.
const Staging* outdated_staging(const Record& record, const std::string& path) {
  const Staging* named = staging_at(record, path);
  if (named == nullptr || !named->complete) return nullptr;  // the undo of a failed stage touches no other
  const auto old =
      std::ranges::find_if(record.stagings, [&](const Staging& staging) { return is_outdated_by(staging.path, path); });
  return old == record.stagings.end() ? nullptr : &*old;
}

/// Whether the volume was staged there. Nomad before 1.8 stages volumes of one name at one path, in any namespace. A
/// volume that was staged there is taken down to the end, although the path is another's alone by then.
bool was_staged_there(const Situation& view, const std::string& target) {
  return view.seen.facts.cleared.contains(target) || (view.record && view.record->stagings.empty());
}

}  // namespace

Decision unpublish(const Situation& view, const Unpublished& wish) {
  if (auto refused = refuse_path(view, wish.target)) return *refused;
  if (mounted_at(view, wish.target) && view.record && view.seen.device() != nullptr && !ours_at(view, wish.target))
    return refuse(errc::failed_precondition,
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

Decision unstage(const Situation& view, const Unstaged& wish) {
  const std::string target = staging_target(view.id, wish.path);
  if (!was_staged_there(view, target))
    if (auto refused = refuse_path(view, wish.path)) return *refused;
  if (view.record)
    if (const Staging* old = outdated_staging(*view.record, wish.path)) return unstage(view, Unstaged{old->path});
  if (auto step = view.record ? refuse_published(view, wish) : unstage_other(view, target)) return *step;
  if (view.record && ours_at(view, target) && !mounted_elsewhere(view, target)) {
    if (auto step = thaw_before_end(view)) return *step;
    if (auto step = lock_folder(view, target)) return *step;
  }
  if (auto step = clear_path<step::Umount>(view, target)) return *step;
  const auto with_stash_gone = [&](Decision then) {
    return view.seen.path_owner.empty() ? without_stash(view, wish, std::move(then)) : then;
  };
  if (!view.record) return with_stash_gone(Done{});
  Record record = *view.record;
  std::erase_if(record.stagings, [&](const Staging& staging) { return staging.path == wish.path; });
  std::erase_if(record.publishes, [&](const Publish& publish) { return publish.staging == wish.path; });
  if (record != *view.record) return write(std::move(record));
  if (!record.stagings.empty()) return with_stash_gone(Done{});
  Decision down = take_down(view);
  const auto* step = std::get_if<Step>(&down);
  const bool last =
      std::holds_alternative<Done>(down) || (step != nullptr && std::holds_alternative<step::DropRecord>(*step));
  return last ? with_stash_gone(std::move(down)) : down;
}

}  // namespace corbd::plan
