#include "corbd/heal/heal_queue.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace corbd::heal {
namespace {

/// The order of the heap, whose front is tried first.
bool after(const HealEntry* one, const HealEntry* other) {
  const auto rank = [](const HealEntry& of) {
    return std::tuple<time_point, bool, time_point, const std::string&>(of.unheard, !of.blocked, of.since,
                                                                        of.volume_id);
  };
  return rank(*other) < rank(*one);
}

}  // namespace

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::healed:
      return "healed";
    case Outcome::well:
      return "well";
    case Outcome::failed:
      return "failed";
    case Outcome::not_asked:
      return "not_asked";
    case Outcome::unreachable:
      return "unreachable";
  }
  return "";
}

void HealQueue::add(HealEntry found, time_point now) {
  const auto known = entries_.find(found.volume_id);
  if (known != entries_.end()) {
    known->second.blocked = found.blocked;
    known->second.since = found.since;
    return;
  }
  std::erase_if(healed_, [&](const auto& entry) { return now - entry.second.healed_at >= config_.reset_after; });
  found.due = now;
  found.under_way = false;
  found.attempts = 0;
  found.failed_with = errc::ok;
  found.own_due.reset();
  found.was_hurried = false;
  // The volume is down again soon after it was healed, so its backoff goes on where it was.
  if (const auto past = healed_.find(found.volume_id); past != healed_.end()) {
    found.attempts = past->second.attempts;
    // It went down at once, so the healing did not help.
    if (past->second.by_a_try && now - past->second.healed_at < config_.at_once_again) ++found.attempts;
    if (found.attempts > 0) found.due = past->second.healed_at + config_.backoff.after(found.attempts, 0.5);
    healed_.erase(past);
  }
  entries_.emplace(found.volume_id, std::move(found));
}

void HealQueue::retry_now(const std::string& volume_id, time_point now) {
  if (const auto place = entries_.find(volume_id); place != entries_.end()) place->second.due = now;
}

void HealQueue::remove(const std::string& volume_id, time_point now) {
  const auto place = entries_.find(volume_id);
  if (place == entries_.end() || place->second.under_way) return;
  healed_[volume_id] = {place->second.attempts, now, false};
  entries_.erase(place);
}

std::vector<std::string> HealQueue::start(time_point now) {
  std::vector<HealEntry*> waiting;
  for (auto& [id, entry] : entries_)
    if (!entry.under_way && entry.due <= now) waiting.push_back(&entry);
  // Use a heap, because only the first few of perhaps thousands are needed.
  std::make_heap(waiting.begin(), waiting.end(), after);
  std::vector<std::string> chosen;
  for (; !waiting.empty() && under_way_ < config_.at_once; waiting.pop_back()) {
    std::pop_heap(waiting.begin(), waiting.end(), after);
    HealEntry* entry = waiting.back();
    Breaker& of = breaker(entry->cluster_id);
    if (!of.allows(now)) continue;
    of.began();
    entry->under_way = true;
    ++under_way_;
    chosen.push_back(entry->volume_id);
  }
  return chosen;
}

void HealQueue::ended(const std::string& volume_id, Outcome outcome, time_point now, double random, errc answer) {
  const auto place = entries_.find(volume_id);
  if (place == entries_.end() || !place->second.under_way) return;
  HealEntry& entry = place->second;
  --under_way_;
  ++ended_.at(static_cast<std::size_t>(outcome));
  entry.under_way = false;
  Breaker& of = breaker(entry.cluster_id);
  if (outcome == Outcome::unreachable) {
    // The volume's own backoff stays as it is, because the cluster's breaker decides when to try again.
    of.unanswered(now, random);
    entry.due = entry.unheard = now;
    entry.own_due.reset();
    return;
  }
  if (outcome == Outcome::well || outcome == Outcome::not_asked)
    of.unasked();
  else
    of.answered();
  if (outcome == Outcome::healed) hurry_others(entry, now);
  if (outcome == Outcome::healed || outcome == Outcome::well) {
    remove(volume_id, now);
    healed_.at(volume_id).by_a_try = outcome == Outcome::healed;
    return;
  }
  entry.failed_with = outcome == Outcome::failed ? answer : errc::ok;
  // A hurried try leaves the volume's own backoff as it is.
  const auto own_due = std::exchange(entry.own_due, std::nullopt);
  entry.was_hurried = own_due.has_value();
  entry.due = own_due ? *own_due : now + config_.backoff.after(entry.attempts++, random);
}

void HealQueue::hurry_others(const HealEntry& healed, time_point now) {
  if (healed.failed_with == errc::ok) return;
  for (auto& [id, entry] : entries_) {
    if (entry.cluster_id != healed.cluster_id || entry.failed_with != healed.failed_with) continue;
    if (entry.under_way || entry.was_hurried || entry.due <= now) continue;
    entry.own_due = std::exchange(entry.due, now);
  }
}

time_point HealQueue::next(time_point now) const {
  time_point soonest = time_point::max();
  for (const auto& [id, entry] : entries_) {
    if (entry.under_way) continue;
    const auto place = breakers_.find(entry.cluster_id);
    const bool shut = place != breakers_.end() && !place->second.allows(now);
    const time_point at = shut ? place->second.next(now) : entry.due;
    // A volume that is due already waits for another try to end, not for a time.
    if (at > now) soonest = std::min(soonest, std::max(at, shut ? entry.due : at));
  }
  return soonest;
}

bool HealQueue::waits_for_cluster(const std::string& cluster_id) const {
  const auto place = breakers_.find(cluster_id);
  return place != breakers_.end() && place->second.open();
}

Breaker& HealQueue::breaker(const std::string& cluster_id) {
  return breakers_.try_emplace(cluster_id, config_.backoff).first->second;
}

}  // namespace corbd::heal
