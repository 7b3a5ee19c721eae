#pragma once

#include <chrono>

namespace corbd {

/// A point in time of the agent's monotonic clock.
using time_point = std::chrono::steady_clock::time_point;
using duration = std::chrono::steady_clock::duration;

}  // namespace corbd
