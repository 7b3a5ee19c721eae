#include "trim_schedule.hpp"

#include <algorithm>
#include <functional>

namespace corbd::volume {

std::string why_never_trimmed(const TrimCandidate& of) {
  if (of.block) return "a raw block device: only its user knows which blocks are free";
  if (of.read_only) return "read-only";
  if (!of.in_pieces) return "its filesystem cannot be trimmed in pieces";
  if (!of.discards) return "its mapOptions turn discards off";
  return "";
}

std::string why_trim_waits(const TrimCandidate& of) {
  if (!of.staged) return "it is not staged and served";
  if (of.operation) return "an operation is under way";
  if (!of.hangs.empty()) return "the trim of volume " + of.hangs + " hangs";
  if (of.oldest >= kBusyOldest || of.in_flight > kBusyInFlight || of.requests_per_second > kBusyRequestsPerSecond)
    return "it is busy";
  return "";
}

std::int64_t trim_turn(const std::string& volume_id, std::chrono::seconds every, WallTime now) {
  const auto period = static_cast<std::uint64_t>(every.count());
  const auto at = static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count()));
  return static_cast<std::int64_t>((at + std::hash<std::string>()(volume_id) % period) / period);
}

bool trim_is_due(const TrimCandidate& of, TrimTurn& turn, std::chrono::seconds every, WallTime now) {
  const std::int64_t present = trim_turn(of.id, every, now);
  // A clock that was set back must not silence the schedule until it has caught up.
  if (!turn.ended || *turn.ended > present) turn.ended = present;
  if (*turn.ended == present) return false;
  if (!of.trimmed_at || now - *of.trimmed_at >= every / 2 || *of.trimmed_at > now) return true;
  turn.ended = present;
  turn.from = 0;
  return false;
}

duration trim_pause(duration took) {
  return std::clamp<duration>(4 * took, std::chrono::seconds(1), std::chrono::minutes(1));
}

}  // namespace corbd::volume
