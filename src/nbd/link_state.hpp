// The state of a link for other threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "corbd/device/device.hpp"

namespace corbd::nbd {

/// Returns CLOCK_MONOTONIC. Cheap, and exact to a tick of the kernel.
std::int64_t coarse_ms();
/// Returns the same clock, exactly.
std::int64_t now_us();

/// Values that any thread may read of a link, also when the link is gone.
struct LinkState {
  using State = device::Link::State;
  std::atomic<State> state{State::serving};
  /// For the io thread, which changes the state, and for the sender of replies, who keeps it from changing.
  bool serving() const { return state.load(std::memory_order_relaxed) == State::serving; }
  std::atomic<std::int64_t> oldest_ms{0};  ///< start of the image's oldest operation under way; 0: there is none
  std::atomic<std::uint64_t> oldest_at{0}, oldest_bytes{0};  ///< its bytes, or still of the one before
  /// Returns the age of that operation, to a few milliseconds.
  duration oldest() const;
  image::Range oldest_range() const {
    return {oldest_at.load(std::memory_order_relaxed), oldest_bytes.load(std::memory_order_relaxed)};
  }
};
/// Whether a resize may go to the kernel. Newer kernels wait in it for the requests in flight, so these must be able to
/// end. `waited`: time since the cluster was known to answer.
result<> may_resize(const LinkState& state, duration waited);

}  // namespace corbd::nbd
