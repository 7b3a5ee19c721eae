#include "freezing.hpp"

#include <array>
#include <cerrno>
#include <utility>

namespace corbd::volume {

// No answer is ETIMEDOUT, ERESTART or EOPNOTSUPP: a snapshotter repeats its request for ever after the first two, and
// asks for the exclusive lock after the third (librbd's C_InvokeAsyncRequest).

/// librbd asks one client at a time. Two may ask at once while the volume changes its client, and the next snapshot may
/// come before the thaw has ended.
Freezing::Out Freezing::asked() {
  if (leaving_ || owed_ || phase_ == Phase::freezing || phase_ == Phase::frozen) return {.refuse = true};
  owed_ = true;
  if (phase_ == Phase::thawing) {
    waiting_ = true;
    return {};
  }
  phase_ = Phase::freezing;
  return {.freeze = true};
}

Freezing::Out Freezing::thaw(std::optional<int> answer) {
  phase_ = Phase::thawing;
  if (!std::exchange(owed_, false)) answer.reset();
  return {.answer = answer, .thaw = true};
}

Freezing::Out Freezing::thawed() {
  // Somebody thawed it too early.
  const bool broken = phase_ == Phase::frozen;
  if (phase_ == Phase::freezing) return {};
  phase_ = Phase::idle;
  if (!std::exchange(waiting_, false)) return {.broken = broken};
  phase_ = Phase::freezing;
  return {.freeze = true};
}

Freezing::Out Freezing::next(In in) {
  if (in == In::leaves || in == In::returns) leaving_ = in == In::leaves;
  switch (in) {
    case In::asked:
      return asked();
    case In::thawed:
      return thawed();
    case In::found:
      return phase_ == Phase::idle ? thaw({}) : Out{};
    case In::froze:
      if (phase_ != Phase::freezing) return {};
      phase_ = Phase::frozen;
      owed_ = false;
      return {.answer = 0};
    case In::refused:
      if (phase_ != Phase::freezing) return {};
      phase_ = Phase::idle;
      owed_ = false;
      return {.answer = -EBUSY};
    case In::unsure:
      return phase_ == Phase::freezing ? thaw(-EIO) : Out{};
    case In::ended:
      return phase_ == Phase::frozen ? thaw({}) : Out{};
    case In::limit:
    case In::leaves: {
      const int why = in == In::limit ? -ETIME : -ESHUTDOWN;
      if (phase_ == Phase::freezing) return thaw(why);
      if (phase_ == Phase::frozen) {
        // The snapshot is nearly made.
        if (in == In::leaves) return {};
        Out out = thaw({});
        out.broken = true;
        return out;
      }
      // A request that waits for the thaw waits no longer than any other.
      if (!std::exchange(waiting_, false)) return {};
      owed_ = false;
      return {.answer = why};
    }
    case In::returns:
      return {};
  }
  return {};
}

std::string_view name(Freezing::Phase phase) {
  constexpr std::array<std::string_view, 4> names{"idle", "freezing", "frozen", "thawing"};
  return names.at(static_cast<std::size_t>(phase));
}

}  // namespace corbd::volume
