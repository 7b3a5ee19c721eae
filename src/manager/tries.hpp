// Decides when a failed call is repeated. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "corbd/core/result.hpp"

namespace corbd::manager {

struct Tries {
  std::uint32_t failed = 0;   ///< failures that may pass: UNAVAILABLE, RESOURCE_EXHAUSTED, a try that took too long
  std::uint32_t pending = 0;  ///< ABORTED: the plugin still works on an earlier call for the volume
};

/// Counts the failure and returns the pause before the next try. Nothing: there is none, after the third failure of the
/// first kind, and after every other error. A pending operation always gets another try. random: in [0, 1).
std::optional<std::chrono::milliseconds> pause_after(errc code, Tries& tries, double random);

}  // namespace corbd::manager
