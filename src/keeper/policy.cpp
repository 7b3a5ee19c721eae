#include "policy.hpp"

#include <algorithm>
#include <array>
#include <csignal>

namespace corbd::keeper {
namespace {
using namespace std::chrono_literals;
constexpr duration kForgottenIn = 5min, kLongestPause = 5min, kOneEntryIn = 5min;
constexpr int kEntriesAtOnce = 60;
/// From this death in a series on, no link is kept.
constexpr int kSeries = 4;
/// More deaths would not make the pause longer, and would only be remembered longer.
constexpr int kMostDeaths = 12;

/// The first start comes at once, because requests wait for it. While links are kept, the next agent comes within
/// kStartsAgainWithin.
duration pause_after(int deaths) {
  constexpr std::array<std::chrono::milliseconds, kSeries - 1> first{0ms, 100ms, 500ms};
  if (deaths < kSeries) return first.at(static_cast<std::size_t>(deaths - 1));
  return std::min<duration>(1s * (1 << (deaths - 3)), kLongestPause);
}
}  // namespace

bool trusts(int signal) {
  return signal == 0 || signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
         signal == SIGQUIT;
}

Restart Policy::died(time_point now, bool served_well) {
  if (served_well) forgotten_at_ = now;
  forgotten_at_ = std::min(std::max(forgotten_at_, now) + kForgottenIn, now + kMostDeaths * kForgottenIn);
  const auto deaths = static_cast<int>((forgotten_at_ - now + kForgottenIn - duration(1)) / kForgottenIn);
  constexpr duration at_once = kEntriesAtOnce * kOneEntryIn;
  paid_at_ = std::min(std::max(paid_at_, now) + kOneEntryIn, now + at_once + kLongestPause);
  const duration budget = std::max<duration>(paid_at_ - now - at_once, duration::zero());
  return {std::max(pause_after(deaths), budget), deaths < kSeries};
}

}  // namespace corbd::keeper
