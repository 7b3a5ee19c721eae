// When a failed call is made again. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "corbd/core/result.hpp"

namespace corbd::manager {

struct Tries {
  std::uint32_t failed = 0;  ///< that may pass by themselves: UNAVAILABLE, RESOURCE_EXHAUSTED, a try that took too long
  std::uint32_t pending = 0;  ///< ABORTED: the plugin still works on an earlier call for the volume
};

/// Counts the failure. The pause before the next try; nothing when there is none: after the third of the first kind,
/// and after every other error. For an operation that is pending there is always a next try. random: in [0, 1).
std::optional<std::chrono::milliseconds> pause_after(errc code, Tries& tries, double random);

}  // namespace corbd::manager
