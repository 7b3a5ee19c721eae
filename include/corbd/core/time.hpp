#pragma once

#include <chrono>

namespace corbd {

/// Of the agent's clock: monotonic.
using time_point = std::chrono::steady_clock::time_point;
using duration = std::chrono::steady_clock::duration;

}  // namespace corbd
