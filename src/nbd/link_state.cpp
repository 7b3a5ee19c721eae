#include "link_state.hpp"

#include <time.h>

#include <algorithm>

namespace corbd::nbd {
namespace {
// A request that waits for longer waits for a cluster that may never answer.
constexpr std::chrono::seconds kStuck{1};
}  // namespace

std::int64_t coarse_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

std::int64_t now_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

duration LinkState::oldest() const {
  const std::int64_t began = oldest_ms.load(std::memory_order_relaxed);
  // The coarse clock may be a tick behind the exact one, which timed the beginning.
  return began == 0 ? duration::zero() : std::chrono::milliseconds(std::max<std::int64_t>(0, coarse_ms() - began));
}

result<> may_resize(const LinkState& state, duration waited) {
  if (state.state.load(std::memory_order_acquire) != LinkState::State::serving)
    return Error{errc::unavailable, "its link is down"};
  if (state.oldest() > kStuck) return Error{errc::unavailable, "a request waits for the cluster"};
  if (waited > kStuck)
    return Error{errc::unavailable,
                 "other kernel commands took so long that it is unknown whether the cluster still answers"};
  return {};
}

}  // namespace corbd::nbd
