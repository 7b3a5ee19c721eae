#include "health_tracker.hpp"

#include <set>
#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

constexpr std::size_t kTimeline = 64;  // changes kept for a volume

}  // namespace

void HealthTracker::notify(const std::string& volume_id, const Notice& notice) const {
  for (auto* listener : listeners_) listener->notify(volume_id, notice);
}

void HealthTracker::report_failure(Volume& volume, const std::string& why) const {
  if (!volume.server.serves()) volume.link_ended();
  note_health(volume, why);
  for (auto* listener : listeners_) listener->report_failure(volume.id, why);
}

void HealthTracker::note_health(Volume& volume, const std::string& why) const {
  const Health now = health_of(volume);
  if (now == volume.history.health) return;
  const Change change{clock_.wall(), volume.id, volume.history.health, now, why};
  volume.history.health = now;
  volume.history.since = change.at;
  volume.history.timeline.push_back(change);
  if (volume.history.timeline.size() > kTimeline) volume.history.timeline.pop_front();
  log::info("volume.state", {{"volume", volume.id}, {"old", name(change.from)}, {"new", name(now)}, {"cause", why}});
  for (auto* listener : listeners_) listener->changed(change);
}

void HealthTracker::note_outcome(Volume& volume, const Wish& wish, const result<>& outcome) const {
  // A snapshot that was refused is no failure of the volume.
  if (std::holds_alternative<Frozen>(wish) || std::holds_alternative<Thawed>(wish)) return;
  if (volume.history.lost_since && volume.record && !tells_of_ownership(wish, outcome, volume.facts)) return;
  volume.history.last_error.reset();
  if (!outcome) volume.history.last_error = outcome.error();
  const bool in_use = volume.history.last_error && volume.history.last_error->code == errc::in_use;
  if (!in_use) {
    volume.history.in_use_since.reset();
    volume.history.in_use_by.clear();
  } else if (!volume.history.in_use_since) {
    volume.history.in_use_since = clock_.now();
  }
  if (in_use && volume.facts.holders) tell_who_uses_it(volume);
  if (!outcome && std::holds_alternative<Published>(wish)) tell_read_only(volume);
  if (const auto* staged = std::get_if<Staged>(&wish); staged != nullptr && outcome)
    tell_of_next_stage(volume, *staged);
  tell_of_damage(volume, wish, outcome);
  const bool lost = volume.history.last_error && volume.history.last_error->code == errc::lost;
  if (!lost) volume.history.lost_since.reset();
  if (lost && !volume.history.lost_since) volume.history.lost_since = clock_.now();
  if (!outcome && volume.facts.refused) volume.credentials.refused();
  note_health(volume, volume.history.last_error ? volume.history.last_error->text : std::string(name(wish)) + " done");
  if (outcome && (std::holds_alternative<Staged>(wish) || std::holds_alternative<Published>(wish)))
    for (auto* listener : listeners_) listener->used(volume.id);
}

void HealthTracker::tell_who_uses_it(Volume& volume) const {
  std::set<std::string> who;
  for (const auto& holder : *volume.facts.holders) who.insert(holder.address);
  if (std::exchange(volume.history.in_use_by, who) == who) return;
  log::warning("volume.in_use", {{"volume", volume.id}, {"cause", volume.history.last_error->text}});
  notify(volume.id, {"VolumeInUse", true, volume.history.last_error->text});
}

/// Tells the author of a changed PersistentVolume that its pods still run with the old options: once, not at each
/// restart of kubelet.
void HealthTracker::tell_of_next_stage(Volume& volume, const Staged& wish) const {
  const std::string left = volume.record ? left_for_next_stage(*volume.record, wish) : "";
  if (std::exchange(volume.history.left_for_next_stage, left) == left || left.empty()) return;
  log::warning("volume.left_for_next_stage", {{"volume", volume.id}, {"path", wish.path}, {"what", left}});
  notify(volume.id, {"NextStage", true,
                     "The volume stays as it was staged here. The PersistentVolume now has " + left +
                         ": that comes with the next stage, once all its pods on this node have ended."});
}

/// Reports damage that a stage's check has found. Without a record the stage was undone, and its error says all.
void HealthTracker::tell_of_damage(const Volume& volume, const Wish& wish, const result<>& outcome) const {
  if (!std::holds_alternative<Staged>(wish) || volume.facts.damage.empty() || (outcome && !volume.record)) return;
  const std::string text = outcome ? text_of_damage(*volume.record, volume.facts.damage) : outcome.error().text;
  log::warning("filesystem.damaged", {{"volume", volume.id}, {"cause", text}});
  notify(volume.id, {"FilesystemDamaged", true, text});
}

/// Reports on the volume. A waiting pod shows kubelet's Event, but pods that write already would show nothing.
void HealthTracker::tell_read_only(const Volume& volume) const {
  const auto devices = find_devices(volume, ports_);
  const auto mounts = ports_.mounts.table();
  if (!volume.record || !devices || devices->empty() || !mounts) return;
  if (!status_of(volume, &devices->front(), **mounts).turned_read_only) return;
  notify(volume.id, {"FilesystemReadOnly", true,
                     "The filesystem turned read-only after an error, and another pod may not have it. End its pods on "
                     "this node, so that it is unstaged; its next stage runs fsck."});
}

}  // namespace corbd::volume
