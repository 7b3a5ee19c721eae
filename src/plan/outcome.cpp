#include "corbd/plan/outcome.hpp"

#include <algorithm>

namespace corbd::plan {
namespace {

constexpr duration kFirstPause = std::chrono::milliseconds(500), kLongestPause = std::chrono::seconds(5);

bool published_at(const std::optional<Record>& record, const std::string& target) {
  return record && std::ranges::find(record->publishes, target, &Publish::target) != record->publishes.end();
}

std::optional<Wish> undo_of(const Wish& wish, const std::optional<Record>& before, const std::optional<Record>& now) {
  if (!now) return std::nullopt;
  if (const auto* staged = std::get_if<Staged>(&wish))
    for (const auto& staging : now->stagings)
      if (staging.path == staged->path && !staging.complete) return Unstaged{staged->path};
  if (const auto* published = std::get_if<Published>(&wish))
    if (!published_at(before, published->target) && published_at(now, published->target))
      return Unpublished{published->target};
  return std::nullopt;
}

}  // namespace

bool must_be_durable(const Wish& wish) {
  return !std::holds_alternative<Healed>(wish) && !std::holds_alternative<Adopted>(wish);
}

FailedWish after_failure(const Wish& wish, const std::optional<Record>& before, const std::optional<Record>& now,
                         Error error) {
  if (!final_for_caller(error.code)) return {std::move(error)};
  // A format has begun, and only this record allows repeating it.
  if (std::holds_alternative<Staged>(wish) && now && !now->format.empty())
    return {Error{errc::unavailable, std::move(error.text)}};
  return {std::move(error), undo_of(wish, before, now)};
}

Error undo_failed(const Error& error, const Error& undo) {
  return {errc::unavailable, error.text + "; undoing it failed: " + undo.text};
}

std::optional<duration> pause_before_retry(const Wish& wish, const result<>& outcome, const Facts& facts,
                                           unsigned tries) {
  const bool waits = std::holds_alternative<Staged>(wish) && !outcome && outcome.error().code == errc::in_use &&
                     (facts.holders || !facts.evicted.empty());
  if (!waits) return std::nullopt;
  duration pause = kFirstPause;
  for (unsigned before = 1; before < tries && pause < kLongestPause; ++before)
    pause = std::min(2 * pause, kLongestPause);
  return pause;
}

bool tells_of_ownership(const Wish& wish, const result<>& outcome, const Facts& facts) {
  if (facts.ownership || facts.attachment) return true;
  if (outcome) return !std::holds_alternative<Unpublished>(wish);
  return outcome.error().code != errc::unavailable || std::holds_alternative<Healed>(wish);
}

}  // namespace corbd::plan
