// A wish becomes an operation. An operation asks the planner for one step after another.
#include <algorithm>

#include "corbd/core/log.hpp"
#include "shell_impl.hpp"

namespace corbd::volume {
namespace {

constexpr int kMaxSteps = 80;  // twice what I7 allows: more steps mean a defect of the planner
constexpr std::chrono::milliseconds kWaitPause{300};
// How long the agent remembers since when a volume is refused as in use, after its last caller.
constexpr std::chrono::hours kRememberRefusal{24};
// A conflicting call gets its answer before its own deadline.
constexpr std::chrono::seconds kAnswerBefore{5};

Error stopping() { return {errc::unavailable, "the agent is stopping: repeat when it is back"}; }

/// Paths become as mountinfo has them, so that they can be compared with it and with each other.
void make_real(Wish& wish, const NodeFiles& files) {
  const auto each = [&](auto&... paths) { ((paths = files.real_path(std::move(paths))), ...); };
  if (auto* staged = std::get_if<Staged>(&wish)) each(staged->path);
  if (auto* unstaged = std::get_if<Unstaged>(&wish)) each(unstaged->path);
  if (auto* published = std::get_if<Published>(&wish)) each(published->path, published->target);
  if (auto* unpublished = std::get_if<Unpublished>(&wish)) each(unpublished->target);
  if (auto* expanded = std::get_if<Expanded>(&wish)) each(expanded->path);
  if (auto* trimmed = std::get_if<Trimmed>(&wish)) each(trimmed->path);
}

/// Success must be on the disk too: a write that failed may have happened. Healing does not need it, because a full
/// disk must not keep a device from its server.
bool must_be_durable(const Wish& wish) {
  return !std::holds_alternative<Healed>(wish) && !std::holds_alternative<Adopted>(wish);
}

bool published_at(const std::optional<Record>& record, const std::string& target) {
  return record && std::any_of(record->publishes.begin(), record->publishes.end(),
                               [&](const auto& publish) { return publish.target == target; });
}

/// The wish that removes what a failed wish added to the record, if it added anything (I6).
std::optional<Wish> undo_of(const Wish& wish, const std::optional<Record>& before,
                            const std::optional<Record>& record) {
  if (!record) return std::nullopt;
  if (const auto* staged = std::get_if<Staged>(&wish))
    for (const auto& staging : record->stagings)
      if (staging.path == staged->path && !staging.complete) return Wish(Unstaged{staged->path});
  if (const auto* published = std::get_if<Published>(&wish))
    if (!published_at(before, published->target) && published_at(record, published->target))
      return Wish(Unpublished{published->target});
  return std::nullopt;
}

/// A stage of a served volume does not ask the cluster, so nothing tells whether its key is right. A wrong key must not
/// replace the one that heals the volume.
void offer_key(Volume& volume, const Secret& key) {
  if (volume.key == key) return volume.offered.reset();
  if (volume.record && !volume.key.empty()) {
    volume.offered = key;
    return;
  }
  volume.key = key;
  volume.key_saved = false;
  volume.offered.reset();
}

/// The error of an unpublish or unstage that took everything down, but found something in the folder that is not ours
/// to remove.
result<> what_stays(const Volume& volume, const Wish& wish) {
  const auto* unstaged = std::get_if<Unstaged>(&wish);
  const auto* unpublished = std::get_if<Unpublished>(&wish);
  if (unstaged == nullptr && unpublished == nullptr) return {};
  const auto place =
      volume.facts.cleared.find(unstaged != nullptr ? staging_target(volume.id, unstaged->path) : unpublished->target);
  return place == volume.facts.cleared.end() ? result<>() : place->second;
}

}  // namespace

Volume& Shell::Impl::volume_for(const std::string& id) {
  if (const auto known = volumes_.find(id); known != volumes_.end()) return *known->second;
  std::erase_if(volumes_, [&](const auto& entry) {
    const auto& refused = entry.second->in_use_since;
    return entry.second->idle() && (!refused || clock_.now() - *refused > kRememberRefusal);
  });
  return *volumes_.emplace(id, std::make_unique<Volume>(id, control_, clock_)).first->second;
}

/// The last thing that a coroutine does with a volume. A volume with in_use_since stays: volume_for() forgets it later.
void Shell::Impl::forget_if_idle(const std::string& id) {
  const auto place = volumes_.find(id);
  if (place != volumes_.end() && place->second->idle() && !place->second->in_use_since) volumes_.erase(place);
}

task<result<>> Shell::Impl::start() {
  auto loaded = co_await ports_.records.load();
  if (!loaded) co_return loaded.error();
  for (const auto& file : loaded->set_aside)
    log::error(
        "record.corrupt",
        {{"set_aside_as", file},
         {"hint",
          "the file is kept under that name. If the volume has an nbd device, that still carries the volume ID"}});
  for (const auto& file : loaded->newer)
    log::warning("record.newer",
                 {{"file", file}, {"hint", "a newer version of the agent wrote it, so it is left alone"}});
  for (auto& record : loaded->records) {
    for (auto& staging : record.stagings) staging.path = ports_.files.real_path(std::move(staging.path));
    for (auto& publish : record.publishes) {
      publish.target = ports_.files.real_path(std::move(publish.target));
      publish.staging = ports_.files.real_path(std::move(publish.staging));
    }
    Volume& volume = volume_for(record.volume_id);
    auto key = co_await ports_.records.load_key(record.volume_id);
    if (key) {
      volume.key = std::move(*key);
      volume.key_saved = true;
    }
    volume.record = std::move(record);
    volume.gone = volume.record->boot_id != config_.boot_id;
    // The earlier agent ended before this, but nobody knows when. The kernel client serves its devices without an
    // agent.
    if (volume.record->device && !volume.gone && traits(volume.record->kind).served)
      volume.unserved_since = clock_.now();
    note_health(volume, "the agent started");
  }
  ports_.devices.on_link_dead([this](device::Kind kind, std::uint32_t index) { link_dead(kind, index); });
  co_return result<>();
}

task<result<>> Shell::Impl::want(std::string id, Wish wish, Until until) {
  if (leaving_) co_return stopping();
  make_real(wish, ports_.files);
  Volume& volume = volume_for(id);
  if (cordoned_ && std::holds_alternative<Staged>(wish) && !volume.record && volume.operations.empty()) {
    forget_if_idle(id);
    co_return Error{errc::unavailable, "the agent is drained and stages no new volume: `corbd drain --undo` ends that"};
  }
  const auto same = [&](const auto& operation) { return operation->wish == wish; };
  auto place = std::find_if(volume.operations.begin(), volume.operations.end(), same);
  std::shared_ptr<Operation> operation;
  if (place != volume.operations.end()) {
    operation = *place;
  } else {
    operation = std::make_shared<Operation>(wish, control_, clock_);
    volume.operations.push_back(operation);
    Until lock_until;
    if (until.deadline != time_point::max()) lock_until.deadline = until.deadline - kAnswerBefore;
    gate_.spawn(run(volume, operation, lock_until));
  }
  const Waited how = co_await operation->done.wait(until);
  if (how != Waited::ready)
    co_return wait_error(how, "the " + std::string(name(wish)) + " of volume " + id + ", which goes on");
  co_return operation->outcome;
}

task<> Shell::Impl::run(Volume& volume, std::shared_ptr<Operation> operation, Until lock_until) {
  auto guard = co_await volume.lock.lock(lock_until);
  if (guard) {
    while (volume.link_scopes.size() > 1) volume.link_scopes.pop_front();
    co_await outlast_holders(volume, *operation, lock_until);
    guard->release();
  } else {
    operation->outcome = Error{errc::busy, "another operation on volume " + volume.id + " is under way: repeat later"};
  }
  volume.operations.remove(operation);
  operation->done.set();
  forget_if_idle(std::string(volume.id));
}

/// Pursues the wish. If it fails for good, what it added is undone, because the caller forgets the volume at a final
/// code (I3, I6).
task<result<>> Shell::Impl::fulfil(Volume& volume, Wish wish) {
  auto ready = co_await prepare(volume, wish);
  if (!ready) co_return ready;
  const auto before = volume.record;
  auto outcome = co_await pursue(volume, wish);
  if (outcome && volume.record && volume.unsure && must_be_durable(wish)) {
    const Step again = step::WriteRecord{*volume.record};
    outcome = co_await steps_.run(volume, again, wish);
    // Meanwhile another program may have taken the device away.
    if (outcome) outcome = co_await pursue(volume, wish);
  }
  if (outcome) {
    auto durable = co_await make_durable(volume, wish, before.has_value());
    co_return durable ? what_stays(volume, wish) : durable;
  }
  if (!final_for_caller(outcome.error().code)) co_return outcome;
  // A format has begun, and only this record allows repeating it.
  if (std::holds_alternative<Staged>(wish) && volume.record && !volume.record->format.empty())
    co_return Error{errc::unavailable, outcome.error().text};
  const auto undo = undo_of(wish, before, volume.record);
  if (!undo) co_return outcome;
  log::info("volume.undo", {{"volume", volume.id}, {"wish", name(wish)}, {"because", outcome.error().text}});
  auto undone = co_await pursue(volume, *undo);
  if (undone) co_return outcome;
  co_return Error{errc::unavailable, outcome.error().text + "; undoing it failed: " + undone.error().text};
}

/// A stage may have left a key without a record.
task<result<>> Shell::Impl::make_durable(Volume& volume, const Wish& wish, bool had_record) {
  if (volume.record || had_record || !std::holds_alternative<Unstaged>(wish)) co_return result<>();
  const auto seen = observe(volume, wish, ports_, config_.boot_id, clock_.now());
  // A device without a record belongs to another agent, perhaps of a newer version. Its files are not ours to drop.
  if (seen && !seen->devices.empty())
    log::warning("device.left_alone", {{"volume", volume.id},
                                       {"device", device::path(seen->devices.front())},
                                       {"why",
                                        "it carries the volume ID, but neither a record nor a stash names it: "
                                        "disconnect it with the tool that made it"}});
  if (!seen || !seen->devices.empty()) co_return result<>();
  if (!volume.unsure) co_return co_await ports_.records.drop_key(volume.id);
  const Step drop = step::DropRecord{};
  co_return co_await steps_.run(volume, drop, wish);
}

task<result<>> Shell::Impl::prepare(Volume& volume, const Wish& wish) {
  volume.facts = Facts();
  volume.tries_offered = std::holds_alternative<Staged>(wish);
  if (const auto* staged = std::get_if<Staged>(&wish)) {
    offer_key(volume, staged->key);
    if (staged->attachment.state != Attachment::State::unknown) volume.facts.attachment = staged->attachment;
    co_return co_await ports_.files.check_path(staged->path, true);
  }
  if (const auto* published = std::get_if<Published>(&wish))
    co_return co_await ports_.files.check_path(published->target, false);
  if (const auto* unpublished = std::get_if<Unpublished>(&wish)) {
    auto checked = co_await ports_.files.check_path(unpublished->target, false);
    if (!checked && checked.error().code != errc::not_found) co_return checked;
  }
  if (const auto* unstaged = std::get_if<Unstaged>(&wish)) {
    auto checked = co_await ports_.files.check_path(unstaged->path, true);
    if (!checked && checked.error().code != errc::not_found) co_return checked;
  }
  co_return result<>();
}

/// What is true of the volume now. Remembers what its status shows of that.
result<Observation> Shell::Impl::look_at(Volume& volume, const Wish& wish) {
  auto seen = observe(volume, wish, ports_, config_.boot_id, clock_.now());
  if (!seen) return seen;
  volume.gone = seen->devices.empty() || (volume.record && volume.record->boot_id != config_.boot_id);
  if (volume.gone) volume.unserved_since.reset();
  if (seen->devices.empty())
    volume.disconnected = false;
  else if (seen->facts.disconnected)
    volume.disconnected = true;
  if (seen->facts.resolved) observe_neighbours(*seen, volume);
  seen->path_owner = path_owner(*seen, volume, wish);
  return seen;
}

/// Waits a moment. Others may change these facts meanwhile.
task<> Shell::Impl::pause(Volume& volume) {
  co_await sleep_until(control_, clock_, clock_.now() + kWaitPause);
  volume.facts.ownership.reset();
  volume.facts.served_by_other.reset();
  volume.facts.attachment.reset();
}

task<result<>> Shell::Impl::pursue(Volume& volume, Wish wish) {
  std::string waits_for;
  for (int steps = 0; steps < kMaxSteps; ++steps) {
    // This is like a death at this point: the next start goes on from what is true then.
    if (leaving_) co_return stopping();
    const auto seen = look_at(volume, wish);
    if (!seen) co_return seen.error();
    const Decision decision = decide(volume.id, volume.record, wish, *seen, config_.policy);
    if (std::holds_alternative<Done>(decision)) co_return result<>();
    if (const auto* failed = std::get_if<Fail>(&decision)) {
      if (failed->leaves) co_await leave_image(volume, wish);
      co_return failed->error;
    }
    if (const auto* wait = std::get_if<Wait>(&decision)) {
      if (std::exchange(waits_for, wait->why) != wait->why)
        log::info("volume.waits", {{"volume", volume.id}, {"wish", name(wish)}, {"why", wait->why}});
      co_await pause(volume);
      continue;
    }
    auto done = co_await steps_.run(volume, std::get<Step>(decision), wish);
    note_health(volume, std::string(name(wish)));
    note_stall(volume);
    if (!done) co_return co_await step_failed(volume, wish, std::get<Step>(decision), done.error());
  }
  if (volume.image && !volume.link && !volume.lock_held) co_await leave_image(volume, wish);
  co_return Error{errc::unavailable, std::string(name(wish)) + " of volume " + volume.id + " still waits" +
                                         (waits_for.empty() ? "" : ": " + waits_for) + ": repeat it"};
}

/// What the failed step leaves must hold up nobody. Returns its error, with the step's name.
task<result<>> Shell::Impl::step_failed(Volume& volume, const Wish& wish, Step step, Error error) {
  if (!std::holds_alternative<step::StopSession>(step) && !std::holds_alternative<step::CloseImage>(step))
    co_await leave_without_device(volume, wish);
  co_return with_context(std::string(plan::name(step)) + " of volume " + volume.id, error);
}

/// A close that does not end in time goes on, and the next wish waits for it first.
task<> Shell::Impl::leave_image(Volume& volume, const Wish& wish) {
  if (auto closed = co_await steps_.run(volume, Step(step::CloseImage{}), wish); !closed)
    log::warning("image.not_left", {{"volume", volume.id}, {"error", closed.error().text}});
}

/// Only its caller asks for a volume that has no device, and may never come again. Meanwhile our watch and our lock
/// must keep no other node out.
task<> Shell::Impl::leave_without_device(Volume& volume, const Wish& wish) {
  if (!volume.image || leaving_) co_return;
  const auto seen = observe(volume, wish, ports_, config_.boot_id, clock_.now());
  // The kernel may have made a device, or may still make it. That device needs this image.
  if (!seen || !seen->devices.empty() || seen->command) co_return;
  if (volume.link)
    if (auto stopped = co_await steps_.run(volume, Step(step::StopSession{}), wish); !stopped)
      log::warning("session.not_left", {{"volume", volume.id}, {"error", stopped.error().text}});
  if (volume.image && !volume.link) co_await leave_image(volume, wish);
}

Shell::Shell(executor control, Clock& clock, Ports ports, Config config)
    : impl_(std::make_unique<Impl>(std::move(control), clock, std::move(ports), std::move(config))) {}
Shell::~Shell() = default;
task<result<std::vector<std::string>>> Shell::preopen(Until until) { return impl_->preopen(until); }
task<result<>> Shell::start() { return impl_->start(); }
task<> Shell::fence_early(Until until) { return impl_->fence_early(until); }
task<result<>> Shell::want(std::string volume_id, Wish wish, Until until) {
  return impl_->want(std::move(volume_id), std::move(wish), until);
}
task<result<host::Usage>> Shell::usage(std::string volume_id, std::string path, Until until) {
  return impl_->usage(std::move(volume_id), std::move(path), until);
}
task<Users> Shell::users(std::string cluster_id, Until until) { return impl_->users(std::move(cluster_id), until); }
task<result<Holding>> Shell::holders(ImageAt at, bool take, Until until) {
  return impl_->holders(std::move(at), take, until);
}
std::vector<Status> Shell::status() const { return impl_->status(); }
std::optional<Status> Shell::status(const std::string& volume_id) const { return impl_->status(volume_id); }
std::vector<Unclaimed> Shell::unclaimed() const { return impl_->unclaimed(); }
std::vector<Unclaimed> Shell::left_to_kernel() const { return impl_->left_to_kernel(); }
std::vector<Change> Shell::timeline(const std::string& volume_id) const { return impl_->timeline(volume_id); }
void Shell::tell(std::vector<Listener*> listeners) { impl_->listeners_ = std::move(listeners); }
void Shell::set_cordoned(bool on) { impl_->cordoned_ = on; }
task<> Shell::stop(Until until) { return impl_->stop(until); }
std::vector<std::string> Shell::answering(const std::vector<std::string>& volume_ids) const {
  return impl_->answering(volume_ids);
}
task<bool> Shell::quiesce() { return impl_->quiesce(); }
task<std::size_t> Shell::give(Recipient recipient) { return impl_->give(std::move(recipient)); }

}  // namespace corbd::volume
