// The state of a link for other threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "corbd/device/device.hpp"

namespace corbd::nbd {

/// Of CLOCK_MONOTONIC. Cheap, and exact to a tick of the kernel.
std::int64_t coarse_ms();
/// Of the same clock, exact.
std::int64_t now_us();

/// What any thread may read of a link, also when that is gone.
struct LinkState {
  using State = device::Link::State;
  std::atomic<State> state{State::serving};
  std::atomic<std::int64_t> oldest_ms{0};  ///< start of the image's oldest operation under way; 0: there is none
  /// Its age, to a few milliseconds.
  duration oldest() const;
};
/// Whether a resize may go to the kernel. Newer kernels wait in it for the requests in flight, so nothing may keep
/// those from ending. `waited` counts since the cluster was known to answer.
result<> may_resize(const LinkState& state, duration waited);

}  // namespace corbd::nbd
