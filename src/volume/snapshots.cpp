#include "snapshots.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

/// A thaw that could not be made is tried again after this.
constexpr std::chrono::milliseconds kFirstPauseOfThaw{200};
constexpr std::chrono::seconds kLongestPauseOfThaw{1}, kThawsWithin{10};
constexpr std::chrono::milliseconds kLooksForThaw{10};

}  // namespace

bool can_quiesce(const Record& record) { return traits(record.device.kind).served && !record.use.read_only; }

bool quiesces(const Record& record, const Config& config, const std::optional<std::string>& mode) {
  if (mode == "skip") return false;
  if (mode == "required" || mode == "ignore-error") return true;
  return record.source.serving.quiesce.value_or(config.quiesce);
}

Snapshots::~Snapshots() {
  for (const auto& [id, one] : all_) clock_.cancel(one.limit);
}

void Snapshots::refuse(const std::string& volume_id, const std::string& why) {
  if (Volume* const volume = volumes_.find(volume_id)) ++volume->history.counts.freezes.refused;
  log::warning("snapshot.refused", {{"volume", volume_id}, {"cause", why}});
}

void Snapshots::asked(const std::string& volume_id, image::QuiesceHandlers::Answer answer) {
  // A filesystem that is mounted read-only for its damage stands still.
  if (const Volume* const volume = volumes_.find(volume_id);
      volume != nullptr && volume->record && volume->record->damaged)
    return answer(0);
  One& one = all_[volume_id];
  Freezing probe = one.state;
  if (leaving_ || probe.next(Freezing::In::asked).refuse) {
    answer(leaving_ ? -ESHUTDOWN : -EBUSY);
    refuse(volume_id, leaving_ ? "the agent is leaving" : "another snapshot of it is being made");
    if (one.state.idle()) all_.erase(volume_id);
    return;
  }
  one.answer = std::move(answer);
  begin_limit(volume_id, one);
  apply(volume_id, Freezing::In::asked);
}

void Snapshots::ended(const std::string& volume_id) {
  if (all_.contains(volume_id)) apply(volume_id, Freezing::In::ended);
}

void Snapshots::note(const Volume& volume) {
  const bool frozen = volume.record && volume.record->freeze;
  const auto known = all_.find(volume.id);
  if (known == all_.end()) {
    if (!frozen || leaving_) return;
    all_[volume.id].inherited = true;
    apply(volume.id, Freezing::In::found);
    return;
  }
  if (!frozen && !known->second.hold && known->second.state.phase() == Freezing::Phase::frozen)
    apply(volume.id, Freezing::In::thawed);
}

void Snapshots::begin_limit(const std::string& volume_id, One& one) {
  clock_.cancel(one.limit);
  one.limit = clock_.schedule(clock_.now() + config_.freeze_limit, [this, volume_id] {
    const auto known = all_.find(volume_id);
    if (known == all_.end()) return;
    known->second.limit = 0;
    apply(volume_id, Freezing::In::limit);
  });
}

void Snapshots::report_broken(const std::string& volume_id, const std::string& cause) {
  if (Volume* const volume = volumes_.find(volume_id)) ++volume->history.counts.freezes.broken;
  log::error("snapshot.broken",
             {{"volume", volume_id},
              {"cause", cause},
              {"effect", "the snapshot is like one without a freeze: mounting a clone of it may replay a journal"}});
  health_.notify(volume_id, {"SnapshotNotFrozen", true,
                             "The volume was thawed before the snapshot was known to be made. That snapshot is "
                             "like one without a freeze: delete it and make another."});
}

/// False: the agent ends. It may come back to apply() before it returns.
bool Snapshots::begin(const std::string& volume_id, One& one) {
  one.since = clock_.now();
  one.freeze_id =
      config_.boot_id + "-" +
      std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(clock_.wall().time_since_epoch()).count()) +
      "-" + std::to_string(++freezes_);
  const time_point until = clock_.now() + config_.freeze_limit;
  const Volume* const volume = volumes_.find(volume_id);
  if (volume == nullptr || !volume->record || !volume->record->use.block)
    return gate_.spawn(freeze(volume_id, one.freeze_id, until, scope_));
  one.hold = std::make_shared<CancelScope>();
  return gate_.spawn(hold(volume_id, one.freeze_id, until, one.hold));
}

void Snapshots::apply(const std::string& volume_id, Freezing::In in) {
  One& one = all_[volume_id];
  const Freezing::Phase before = one.state.phase();
  const Freezing::Out out = one.state.next(in);
  Volume* const volume = volumes_.find(volume_id);
  log::debug("snapshot.phase", {{"volume", volume_id}, {"old", name(before)}, {"new", name(one.state.phase())}});
  if (out.answer) {
    if (one.answer) one.answer(*out.answer);
    if (*out.answer == 0 && volume != nullptr) ++volume->history.counts.freezes.made;
    if (*out.answer == -ETIME)
      refuse(volume_id, "it did not stand still within " + std::to_string(config_.freeze_limit.count()) + " s");
    if (*out.answer == -ESHUTDOWN) refuse(volume_id, "the agent is leaving");
  }
  if (out.broken) {
    // The answer of 0 may not have left yet.
    if (one.answer) one.answer(-ETIME);
    report_broken(volume_id, "it was thawed before the cluster said that the snapshot was made");
  }
  if (out.freeze) {
    if (!begin(volume_id, one)) apply(volume_id, Freezing::In::refused);
  } else if (out.thaw && one.hold) {
    one.hold->cancel();
  } else if (out.thaw && !std::exchange(one.thaws, true)) {
    static_cast<void>(gate_.spawn(thaw(volume_id, scope_)));
  }
  const auto known = all_.find(volume_id);
  if (known == all_.end() || !known->second.state.idle()) return;
  clock_.cancel(known->second.limit);
  all_.erase(known);
}

task<> Snapshots::freeze(std::string volume_id, std::string freeze_id, time_point until,
                         std::shared_ptr<CancelScope> leaving) {
  // An operation that is under way keeps the lock: the wait for it ends well before its caller's.
  constexpr std::chrono::seconds after_lock{5};
  const auto frozen = co_await want_(volume_id, Frozen{freeze_id, until}, {until + after_lock, leaving.get()});
  const auto known = all_.find(volume_id);
  if (known == all_.end() || known->second.freeze_id != freeze_id) co_return;
  const Volume* const volume = volumes_.find(volume_id);
  const auto noted = volume != nullptr && volume->record ? volume->record->freeze : std::nullopt;
  // An operation that came next may have thawed it already.
  if (frozen && noted == Freeze{freeze_id}) {
    log::debug("snapshot.frozen", {{"volume", volume_id}});
    apply(volume_id, Freezing::In::froze);
    co_return;
  }
  const bool under_way = volume != nullptr && (!volume->operations.empty() || volume->writes.unsure);
  if (known->second.state.phase() == Freezing::Phase::freezing)
    refuse(volume_id, frozen ? "its filesystem was thawed at once" : frozen.error().text);
  apply(volume_id, noted || under_way ? Freezing::In::unsure : Freezing::In::refused);
}

bool Snapshots::is_in(const std::string& volume_id, const std::string& freeze_id, Freezing::Phase phase) const {
  const auto known = all_.find(volume_id);
  return known != all_.end() && known->second.freeze_id == freeze_id && known->second.state.phase() == phase;
}

/// Returns, once the scope is cancelled, why it did not hold if it did not. No operation takes the link away meanwhile,
/// or gives the device another one: the volume's lock is ours.
task<std::string> Snapshots::hold_back(Volume& volume, const std::string& freeze_id, Until until) {
  const auto guard = co_await volume.lock.lock(until);
  if (!guard) co_return guard.error().text;
  if (!volume.server.serves()) co_return "its device has no server now";
  device::Link* const link = volume.server.link();
  const auto serves = [&volume, link] { return volume.server.serves() && volume.server.link() == link; };
  const Waited drained = co_await link->drain(until);
  if (drained == Waited::ready && serves() && is_in(volume.id, freeze_id, Freezing::Phase::freezing)) {
    log::debug("snapshot.frozen", {{"volume", volume.id}});
    apply(volume.id, Freezing::In::froze);
    static_cast<void>(co_await sleep_until(control_, clock_, time_point::max(), until.scope));
  }
  if (serves()) link->undrain();
  co_return "its requests under way were not answered in time";
}

task<> Snapshots::hold(std::string volume_id, std::string freeze_id, time_point until,
                       std::shared_ptr<CancelScope> scope) {
  std::string why = "it is not staged here";
  if (Volume* const volume = volumes_.find(volume_id)) {
    ++volume->users;
    why = co_await hold_back(*volume, freeze_id, {until, scope.get()});
    --volume->users;
  }
  const bool refused = is_in(volume_id, freeze_id, Freezing::Phase::freezing);
  if (refused || is_in(volume_id, freeze_id, Freezing::Phase::thawing)) {
    all_[volume_id].hold.reset();
    if (refused)
      refuse(volume_id, why);
    else
      note_end(volume_id);
    apply(volume_id, refused ? Freezing::In::refused : Freezing::In::thawed);
  }
  volumes_.forget_if_idle(volume_id);
}

void Snapshots::note_end(const std::string& volume_id) {
  Volume* const volume = volumes_.find(volume_id);
  const time_point since = all_[volume_id].since;
  if (volume != nullptr && since != time_point{}) {
    auto& longest = volume->history.counts.freezes.longest;
    longest = std::max(longest, clock_.now() - since);
  }
  log::info("snapshot.thawed", {{"volume", volume_id}});
}

task<> Snapshots::thaw(std::string volume_id, std::shared_ptr<CancelScope> leaving) {
  duration pause = kFirstPauseOfThaw;
  bool told = false;
  for (;;) {
    const auto thawed = co_await want_(volume_id, Thawed{}, {clock_.now() + kThawsWithin, leaving.get()});
    if (thawed) break;
    if (!std::exchange(told, true))
      log::warning("snapshot.not_thawed", {{"volume", volume_id},
                                           {"error", thawed.error().text},
                                           {"effect", "it is tried again until it succeeds; writers wait"}});
    const Waited waited = co_await sleep_until(control_, clock_, clock_.now() + pause, leaving.get());
    pause = std::min<duration>(2 * pause, kLongestPauseOfThaw);
    if (waited != Waited::cancelled && !leaving->cancelled()) continue;
    if (const auto known = all_.find(volume_id); known != all_.end()) known->second.thaws = false;
    co_return;
  }
  const auto known = all_.find(volume_id);
  if (known == all_.end()) co_return;
  known->second.thaws = false;
  Volume* const volume = volumes_.find(volume_id);
  // With the lock, the agent that died made the snapshot itself, and nobody else did before the thaw.
  if (std::exchange(known->second.inherited, false) && volume != nullptr && volume->server.own() != nullptr &&
      !volume->server.has(WriteRight::exclusive_lock))
    report_broken(volume_id,
                  "the agent before this one ended while the filesystem was frozen, and nothing says that "
                  "the snapshot was made before the thaw");
  note_end(volume_id);
  apply(volume_id, Freezing::In::thawed);
}

bool Snapshots::all_idle() const {
  return std::ranges::all_of(all_, [this](const auto& one) {
    // Without a server nobody can thaw it now.
    const Volume* const volume = volumes_.find(one.first);
    return one.second.state.idle() || volume == nullptr || !volume->server.serves();
  });
}

task<> Snapshots::idle(time_point last) {
  while (!all_idle() && clock_.now() < last) co_await sleep_until(control_, clock_, clock_.now() + kLooksForThaw);
}

task<> Snapshots::leave(duration ends_within, duration thaws_within) {
  leaving_ = true;
  std::vector<std::string> ids;
  for (const auto& [id, one] : all_) ids.push_back(id);
  for (const auto& id : ids)
    if (all_.contains(id)) apply(id, Freezing::In::leaves);
  co_await idle(clock_.now() + ends_within);
  ids.clear();
  for (const auto& [id, one] : all_) ids.push_back(id);
  for (const auto& id : ids)
    if (all_.contains(id)) apply(id, Freezing::In::limit);
  co_await idle(clock_.now() + thaws_within);
  scope_->cancel();
}

void Snapshots::resume() {
  leaving_ = false;
  scope_ = std::make_shared<CancelScope>();
  for (const auto& [id, one] : all_) {
    clock_.cancel(one.limit);
    if (one.hold) one.hold->cancel();
  }
  all_.clear();
  for (const auto& [id, volume] : volumes_) note(*volume);
}

}  // namespace corbd::volume
