#include "shutdown.hpp"

#include <algorithm>
#include <utility>

#include "corbd/core/log.hpp"
#include "release.hpp"

namespace corbd::volume {
namespace {

// A longer step is cut off as by a crash, and its volume is healed.
constexpr std::chrono::seconds kStepsEndWithin{5};
constexpr std::chrono::seconds kClosesEndWithin{5};
constexpr std::chrono::seconds kWritesEndWithin{30};
constexpr std::chrono::milliseconds kLooksAgain{20};
// The device's I/O stalls during this time.
constexpr std::chrono::milliseconds kHandsOverWithin{1600};
// The kernel needs milliseconds.
constexpr std::chrono::seconds kLinksEndWithin{1};
// More at once would make each of them wait longer for the cluster.
constexpr int kHandOverAtOnce = 8;
// The device's I/O stalls during each of them.
constexpr int kHandOverTries = 3;

/// Whether the volume may be handed over. Its lock, if one counts, is the next agent's proof.
bool may_be_handed_over(const Volume& volume) {
  if (!volume.server.serves() || volume.server.is_tombstone() || !volume.record || !volume.record->device.index)
    return false;
  if (!volume.operations.empty() || volume.record->adopting) return false;
  return volume.server.has(WriteRight::exclusive_lock) || !volume.record->use.writes_alone() ||
         !volume.server.image()->exclusive_lock();
}

/// Whether no lock proves the image ours: the next agent then compares the image's timestamp with that of the record.
bool rests_on_record(const Volume& volume) {
  return may_be_handed_over(volume) && !volume.server.has(WriteRight::exclusive_lock) &&
         volume.record->use.writes_alone();
}

/// Whether the record still says that the lock is asked for, although the volume is served on it.
bool is_lock_call_over(const Volume& volume) {
  return volume.record->proof.lock_call && volume.operations.empty() && volume.server.serves() &&
         volume.server.has(WriteRight::exclusive_lock);
}

std::int64_t ms(duration of) { return std::chrono::duration_cast<std::chrono::milliseconds>(of).count(); }

}  // namespace

task<> Shutdown::drain(Volume& volume, Until until) {
  ++volume.users;
  const Waited drained = co_await volume.server.link()->drain(until);
  --volume.users;
  if (drained != Waited::ready)
    log::warning("volume.undrained",
                 {{"volume", volume.id},
                  {"in_flight", volume.server.link() != nullptr ? volume.server.link()->in_flight() : 0}});
}

task<> Shutdown::drain_all(Until until) {
  Gate& drains = gates_.emplace_back(control_, clock_);
  for (const auto& [id, volume] : volumes_)
    if (OwnLink* link = volume->server.own_link(); link != nullptr && !std::exchange(link->drained, true))
      drains.spawn(drain(*volume, until));
  co_await drains.close({});
}

/// Ends the links: if the process ended with a live link, the kernel might fail the request that it is sending. The end
/// is no failure.
task<> Shutdown::end_links() {
  for (const auto& [id, volume] : volumes_) {
    if (volume->server.link() == nullptr) continue;
    volume->server.set_connected(false);
    volume->server.link()->shut();
  }
  const Waited ended = co_await ports_.devices.end_links({clock_.now() + kLinksEndWithin});
  if (ended != Waited::ready)
    log::warning("volume.links_not_ended", {{"effect", "the kernel may fail a request that it is sending"}});
}

/// Drains sessions first and all at once, because an operation may wait for a cluster that does not answer. No
/// operation begins a further step. The second drain is for links that the last steps made.
task<> Shutdown::stop(Until until) {
  begun_ = true;
  usage_.stop();
  kernel_.stop();
  secrets_.stop();
  trimmer_.stop();
  co_await drain_all(until);
  co_await gate_.close(until);
  co_await drain_all(until);
  co_await end_links();
  // An image that does not close goes with the process, and the next start fences its client.
  co_await closes_.end(until.at_most(clock_.now() + kClosesEndWithin));
}

task<result<device::LinkSocket>> Shutdown::end_for_next(Volume& volume, Until until) {
  auto socket = co_await release(volume, ports_, For::next_agent, until, until);
  if (!socket) co_return socket.error();
  co_return device::LinkSocket{volume.id, *volume.record->device.index, std::move(*socket), volume.record->device.kind};
}

/// Serves a volume on whose requests were not answered in time, and tries it again after all others.
void Shutdown::hand_over_later(Volume& volume, const Error& why) {
  const bool serves = volume.server.serves();
  const bool again = serves && ++volume.server.own_link()->handover_tries < kHandOverTries;
  log::warning("volume.handover_failed", {{"volume", volume.id},
                                          {"error", why.text},
                                          {"effect", again ? "it stays served, and is handed over after the others"
                                                           : "its link ends, and the next agent heals it"}});
  if (serves) volume.server.link()->undrain();
  if (again) to_hand_over_.push_front(volume.id);
}

/// A link that is not handed over is dead as soon as this process ends.
task<> Shutdown::hand_over_one(Volume& volume, Handover& handover) {
  const auto begun = clock_.now();
  ++volume.users;
  auto given = co_await end_for_next(volume, {begun + kHandsOverWithin});
  --volume.users;
  if (!given) {
    hand_over_later(volume, given.error());
    co_return;
  }
  // Other clients see that its lock has an owner, until the next agent has it.
  const auto image = volume.server.take_image();
  const auto ended = clock_.now();
  const Taken taken = co_await handover.recipient(std::move(*given));
  log::debug("volume.handed_over",
             {{"volume", volume.id}, {"ended_ms", ms(ended - begun)}, {"served_ms", ms(clock_.now() - ended)}});
  if (taken == Taken::served) co_await image->lock_taken_over({clock_.now() + kHandsOverWithin});
  if (taken == Taken::refused)
    handover.refused = true;
  else
    ++handover.handed_over;
}

task<> Shutdown::hand_over_some(Handover& handover) {
  while (!to_hand_over_.empty() && !handover.refused) {
    Volume* const known = volumes_.find(to_hand_over_.back());
    to_hand_over_.pop_back();
    if (known != nullptr && may_be_handed_over(*known)) co_await hand_over_one(*known, handover);
  }
}

std::vector<std::string> Shutdown::answering(const std::vector<std::string>& ids) const {
  std::vector<std::string> found;
  for (const auto& id : ids)
    if (const Volume* known = volumes_.find(id);
        known != nullptr && known->server.serves() && known->server.link()->oldest() < kAnswersWithin)
      found.push_back(id);
  return found;
}

/// A coroutine that watches a stall takes no step, and goes on until the cluster answers.
std::size_t Shutdown::watched_stalls() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(volumes_, [](const auto& one) { return one.second->history.stall.watched; }));
}

/// Returns why the next agent must have the record that the disk refuses. Empty: with an older one it serves nothing
/// without a proof.
std::string Shutdown::needs_record(const Volume& volume, std::optional<Loss> loss) {
  if (loss == Loss::record)
    return "only this agent knows the record of volume " + volume.id +
           ", whose file is gone or damaged, so the next agent could not serve the volume";
  if (loss == Loss::changed_record)
    return "only this agent knows the record of volume " + volume.id +
           ", whose file somebody replaced, so the next agent would act on a wrong record";
  if (loss == Loss::key)
    return "only this agent knows the Ceph key of volume " + volume.id +
           ", whose file is gone or damaged, so the cluster might refuse the next agent";
  if (volume.record->proof.operator_override)
    return "only this agent knows that it acted on an operator override for volume " + volume.id +
           ", and without that record the next agent would take what it did for a proof";
  if (volume.writes.on_disk.has_lock_call() && !volume.record->proof.lock_call && volume.server.serves())
    return "the file of the record of volume " + volume.id +
           " still says that its lock is being asked for, so that lock would be no proof for the next agent";
  if (rests_on_record(volume))
    return "the image of volume " + volume.id +
           " has no exclusive-lock, so the next agent could not prove it ours without a record that cannot be written";
  return "";
}

/// Requires the volume's lock, or that nothing is being written.
task<bool> Shutdown::has_lost_key(Volume& volume, Record record) {
  if (volume.credentials.known().empty() || volume.credentials.unproven()) co_return false;
  auto key = co_await ports_.records.load_key(record);
  if (!key) co_return true;
  // A key that was not written yet is not lost.
  if (volume.credentials.to_be_saved()) co_return false;
  co_return !volume.credentials.has({record.user, std::move(*key)});
}

task<std::optional<Shutdown::Loss>> Shutdown::loss_of(Volume& volume, const std::vector<Record>& there) {
  const auto file = std::ranges::find(there, volume.id, &Record::volume_id);
  if (file == there.end()) co_return Loss::record;
  Record record = with_real_paths(*file, ports_.files);
  // A record that is written without a key keeps the user of its file, so that user is not compared.
  if (volume.credentials.known().empty() || volume.credentials.unproven()) record.user = volume.record->user;
  if (!volume.writes.on_disk.may_be(record)) co_return Loss::changed_record;
  // rewrite_records() writes the record in any case, and its key with it if that is new.
  if (volume.writes.refused) co_return std::nullopt;
  const bool lost_key = co_await has_lost_key(volume, std::move(record));
  co_return lost_key ? std::optional(Loss::key) : std::nullopt;
}

/// Finds lost files: the next agent reads only the files, and somebody may have removed, damaged or replaced one since
/// this agent wrote it.
task<result<>> Shutdown::find_lost_files(Until until) {
  const auto there = co_await ports_.records.peek(until);
  if (!there) co_return there.error();
  const auto before = std::exchange(lost_, {});
  std::vector<std::string> ids;
  for (const auto& [id, volume] : volumes_) ids.push_back(id);
  for (const auto& id : ids) {
    Volume* const volume = volumes_.find(id);
    if (volume == nullptr || !volume->record) continue;
    ++volume->users;
    auto loss = co_await loss_of(*volume, *there);
    --volume->users;
    // A file that could not be written again since is still lost.
    if (const auto known = before.find(id); !loss && volume->writes.refused && known != before.end())
      loss = known->second;
    if (loss) lost_.emplace(id, *loss);
  }
  co_return result<>();
}

std::optional<Shutdown::Loss> Shutdown::lost(const Volume& volume) const {
  const auto place = lost_.find(volume.id);
  return place == lost_.end() ? std::nullopt : std::optional(place->second);
}

void Shutdown::note_unwritten(const Volume& volume, const Error& why) {
  if (const std::string needed = needs_record(volume, lost(volume)); !needed.empty())
    unwritten_ = with_context(needed +
                                  ": make room in the state directory, and wait until no operation on the volume is "
                                  "under way",
                              why);
}

/// The next agent tests an image before anything is handed to it, and did not see these files.
Error Shutdown::restored(const Volume& volume, Loss loss) {
  const std::string what = loss == Loss::key ? "Ceph key" : "record";
  const std::string why =
      loss == Loss::changed_record ? "its file was replaced, perhaps by a backup" : "its file was gone or damaged";
  log::warning(loss == Loss::key ? "key.restored" : "record.restored",
               {{"volume", volume.id}, {"cause", why + "; it is written again from memory"}});
  return {errc::state_write, "the " + what + " of volume " + volume.id + " has been written again, because " + why +
                                 ", but the next agent had read the old files: start the handover again. If that "
                                 "happens each time, find out what removes or replaces the file"};
}

/// Writes the record from memory, and the key with it if either file was lost: the next agent needs both.
task<result<>> Shutdown::write_again(Volume& volume, std::optional<Loss> loss) {
  if (loss) volume.credentials.file_lost();
  const plan::Step again = step::WriteRecord{*volume.record};
  co_return co_await steps_.run(volume, again, Wish(Healed{}));
}

task<> Shutdown::restore_key(Volume& volume, Until until) {
  ++volume.users;
  auto guard = co_await volume.lock.lock(until);
  bool is_lost = false;
  if (guard && volume.record) is_lost = co_await has_lost_key(volume, *volume.record);
  if (is_lost) {
    const auto written = co_await write_again(volume, Loss::key);
    if (written)
      static_cast<void>(restored(volume, Loss::key));
    else
      log::warning("key.not_written", {{"volume", volume.id}, {"error", written.error().text}});
  }
  if (guard) guard->release();
  --volume.users;
}

/// Restores key files, which the next agent reads when it asks again.
task<> Shutdown::restore_keys(std::vector<std::string> ids, Until until) {
  for (const auto& id : ids)
    if (Volume* const volume = volumes_.find(id); volume != nullptr && volume->operations.empty())
      co_await restore_key(*volume, until);
}

/// Writes a record whose file is older than the one in memory, damaged or gone, because the next agent reads only the
/// file. The write may outlast an undone handover: an operation after that must not write or drop the record meanwhile.
task<> Shutdown::rewrite_record(Volume& volume, Until until) {
  ++volume.users;
  auto guard = co_await volume.lock.lock(until);
  result<> written = guard ? result<>() : guard.error();
  if (guard && volume.record) {
    const auto loss = lost(volume);
    if (is_lock_call_over(volume)) {
      Record without = *volume.record;
      without.proof.lock_call.reset();
      volume.record = std::move(without);
    }
    written = co_await write_again(volume, loss);
    if (written && loss) unwritten_ = restored(volume, *loss);
  }
  if (guard) guard->release();
  --volume.users;
  // A newer agent's record is not older than ours.
  if (!written && written.error().code != errc::state_newer) note_unwritten(volume, written.error());
}

/// An operation that does not end in time has its volume's lock. It begins no further step, so it writes nothing more.
task<Waited> Shutdown::rewrite_records(Until until) {
  unwritten_.reset();
  Gate& rewrites = gates_.emplace_back(control_, clock_);
  for (const auto& [id, volume] : volumes_) {
    if (!volume->record) continue;
    if (!volume->writes.refused && !lost_.contains(id) && !is_lock_call_over(*volume)) continue;
    if (volume->operations.empty())
      rewrites.spawn(rewrite_record(*volume, until));
    else
      note_unwritten(*volume, {errc::state_write, "an operation on it is under way"});
  }
  co_return co_await rewrites.close(until);
}

task<result<>> Shutdown::quiesce() {
  begun_ = true;
  usage_.stop();
  kernel_.stop();
  secrets_.stop();
  trimmer_.stop();
  // Nothing new comes through this gate, and it may have to be open again.
  for (const auto by = clock_.now() + kStepsEndWithin; gate_.count() > watched_stalls() && clock_.now() < by;)
    co_await sleep_until(control_, clock_, clock_.now() + kLooksAgain);
  // A step that goes on begins no further one, so these writes are the last.
  const auto written_by = clock_.now() + kWritesEndWithin;
  while (steps_.writing() && clock_.now() < written_by)
    co_await sleep_until(control_, clock_, clock_.now() + kLooksAgain);
  const Error still{errc::state_write, "a record is still being written"};
  if (steps_.writing()) co_return still;
  if (auto found = co_await find_lost_files({written_by}); !found) co_return found;
  const Waited rewritten = co_await rewrite_records({written_by});
  if (rewritten != Waited::ready || steps_.writing()) co_return still;
  if (unwritten_) co_return *unwritten_;
  for (const auto& [id, volume] : volumes_)
    if (may_be_handed_over(*volume)) to_hand_over_.push_back(id);
  // A drained link reads nothing more. So a volume that may not be drained in time comes last.
  std::ranges::partition(to_hand_over_,
                         [&](const auto& id) { return volumes_.find(id)->server.link()->oldest() >= kAnswersWithin; });
  co_return result<>();
}

void Shutdown::resume() {
  begun_ = false;
  usage_.resume();
  kernel_.resume();
  secrets_.resume();
  trimmer_.resume();
  to_hand_over_.clear();
}

task<std::size_t> Shutdown::hand_over(Recipient recipient) {
  Handover handover{std::move(recipient), 0, false};
  Gate& workers = gates_.emplace_back(control_, clock_);
  for (int i = 0; i < kHandOverAtOnce; ++i) workers.spawn(hand_over_some(handover));
  co_await workers.close({});
  co_await drain_all({clock_.now() + kHandsOverWithin});
  // The next agent may take the rest before this process has ended.
  co_await end_links();
  co_return handover.handed_over;
}

}  // namespace corbd::volume
