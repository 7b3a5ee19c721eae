#include "corbd/heal/healer.hpp"

#include <algorithm>

#include "corbd/core/log.hpp"

namespace corbd::heal {
namespace {

std::int64_t ms(duration of) { return std::chrono::duration_cast<std::chrono::milliseconds>(of).count(); }

Outcome outcome_of(const result<>& healed, bool was_unserved) {
  if (healed) return was_unserved ? Outcome::healed : Outcome::well;
  switch (healed.error().code) {
    case errc::unreachable:
    case errc::timed_out:
    case errc::pool_full:  // each try leaves an open that waits until there is room, so one asks for all
      return Outcome::unreachable;
    case errc::unavailable:
    case errc::busy:
    case errc::exhausted:
    case errc::failed_precondition:
    case errc::state_write:
      return Outcome::not_asked;
    default:
      return Outcome::failed;
  }
}

}  // namespace

Healer::Healer(executor control, Clock& clock, volume::Volumes& volumes, Config config)
    : control_(control),
      clock_(clock),
      volumes_(volumes),
      config_(std::move(config)),
      queue_(config_.queue),
      gate_(control, clock) {}

Healer::~Healer() {
  clock_.cancel(look_timer_);
  clock_.cancel(next_timer_);
}

void Healer::start() {
  // Admit every volume once, whatever the kernel shows: healing also closes the record of an earlier boot.
  for (const auto& status : volumes_.status()) admit(status, "the agent started");
  look();
}

void Healer::admit(const volume::Status& status, std::string why) {
  HealEntry entry;
  entry.volume_id = status.volume_id;
  entry.cluster_id = status.cluster_id;
  entry.why = std::move(why);
  entry.blocked = status.waiting > 0;
  entry.since = status.unserved_since.value_or(clock_.now());
  queue_.add(std::move(entry), clock_.now());
}

void Healer::report_failure(const std::string& volume_id, const std::string& why) {
  if (stopping_.cancelled()) return;
  if (const auto status = volumes_.status(volume_id)) admit(*status, why);
  start_due_tries();
}

void Healer::retry_now(const std::string& volume_id) {
  for (const auto& status : volumes_.status()) {
    if (!volume_id.empty() && status.volume_id != volume_id) continue;
    if (volume_id.empty() && !status.unserved) continue;
    admit(status, "an operator asked for it");
    queue_.retry_now(status.volume_id, clock_.now());
  }
  start_due_tries();
}

void Healer::look() {
  const auto all = volumes_.status();
  for (const auto& status : all)
    if (status.unserved || status.served_by_other)
      admit(status, status.unserved ? "its device has no server" : "rbd-nbd serves its device");
  report_stuck(all);
  admit_silent(all);
  start_due_tries();
  arm(clock_.now() + config_.look_every, look_timer_, &Healer::look);
}

void Healer::report_stuck(const std::vector<volume::Status>& all) {
  std::set<std::string> known, answering_clusters;
  for (const auto& one : all) {
    known.insert(one.volume_id);
    if (!one.unserved && one.oldest < volume::kSilentAfter) answering_clusters.insert(one.cluster_id);
  }
  for (const auto& one : all) {
    const bool old = one.oldest >= volume::kSilentAfter;
    bool& reported = stuck_[one.volume_id];
    if (!old) {
      reported = false;
      continue;
    }
    if (!std::exchange(reported, true))
      log::warning("volume.stuck",
                   {{"volume", one.volume_id},
                    {"oldest_ms", ms(one.oldest)},
                    {"cluster_answers_others", answering_clusters.contains(one.cluster_id)},
                    {"hint",
                     "see `ceph health detail`: full pools, reached quotas and inactive placement groups hold requests "
                     "back; or the volume's Ceph user was removed"}});
  }
  std::erase_if(stuck_, [&](const auto& entry) { return !known.contains(entry.first); });
}

/// librados sends requests again by itself, so a new client of the same user seldom gets better answers. But one of
/// another user may. The silent client is given up if a new one does better, or once each of its volumes has another
/// user or gets no answers either.
void Healer::admit_silent(const std::vector<volume::Status>& all) {
  silent_clients_.clear();
  for (const auto& one : all)
    if (one.unanswered >= volume::kSilentAfter && !one.client.empty()) silent_clients_.insert(one.client);
  for (const auto& one : all)
    if (silent_clients_.contains(one.client)) admit(one, "its Ceph client leaves requests unanswered");
}

void Healer::arm(time_point at, Clock::TimerId& timer, void (Healer::*then)()) {
  clock_.cancel(timer);
  timer = 0;
  if (at == time_point::max() || stopping_.cancelled()) return;
  timer = clock_.schedule(at, [this, then] {
    if (!stopping_.cancelled()) (this->*then)();
  });
}

void Healer::start_due_tries() {
  auto chosen = queue_.start(clock_.now());
  // Do this before the tries begin: a try that ends at once arms the timer for now.
  arm(queue_.next(clock_.now()), next_timer_, &Healer::start_due_tries);
  for (auto& volume_id : chosen) gate_.spawn(attempt(std::move(volume_id)));
}

task<> Healer::attempt(std::string volume_id) {
  Until until{clock_.now() + config_.try_limit, &stopping_};
  const auto before = volumes_.status(volume_id);
  const plan::Healed wish{.silent = before && silent_clients_.contains(before->client)};
  const auto healed = co_await volumes_.want(volume_id, plan::Wish(wish), until);
  if (stopping_.cancelled()) co_return;
  const auto after = volumes_.status(volume_id);
  const Outcome outcome = outcome_of(healed, before && before->unserved && !(after && after->served_by_other));
  if (!healed) tell(volume_id, healed.error());
  if (healed) told_.erase(volume_id);
  // A volume that is given up is not healed: only its tombstone answers.
  if (outcome == Outcome::healed && after && after->health != volume::Health::failed)
    log::info("volume.healed", {{"volume", volume_id}, {"attempts", queue_.entries().at(volume_id).attempts + 1}});
  queue_.ended(volume_id, outcome, clock_.now(), config_.jitter(), healed ? errc::ok : healed.error().code);
  // Go through the timer: direct calls of tries that end at once would nest, one for each volume of the node.
  arm(clock_.now(), next_timer_, &Healer::start_due_tries);
}

/// Logs each new reason at once, and a repeated one only at attempts 2, 4, 8 ...
void Healer::tell(const std::string& volume_id, const Error& error) {
  const HealEntry& entry = queue_.entries().at(volume_id);
  const std::uint32_t attempt = entry.attempts + 1;
  auto& told = told_[volume_id];
  const bool again = told == error.text;
  told = error.text;
  if (again && (attempt & (attempt - 1)) != 0) return;
  log::warning("volume.heal_failed", {{"volume", volume_id},
                                      {"code", name(error.code)},
                                      {"error", error.text},
                                      {"attempt", attempt},
                                      {"cause", entry.why},
                                      {"unserved_ms", ms(clock_.now() - entry.since)}});
}

task<> Healer::stop() {
  stopping_.cancel();
  clock_.cancel(look_timer_);
  clock_.cancel(next_timer_);
  co_await gate_.close({});
}

}  // namespace corbd::heal
