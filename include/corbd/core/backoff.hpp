// How long to wait before the next try: a pure function, and what to spread it with.
#pragma once

#include <chrono>
#include <cstdint>

namespace corbd {

/// Full jitter: uniform in (0, min(cap, first * 2^attempt)], at least a tenth of it so that no try is immediate.
struct Backoff {
  std::chrono::milliseconds first{1000};
  std::chrono::milliseconds cap{60000};

  /// attempt: 0 for the wait after the first failure. random: uniform in [0, 1).
  std::chrono::milliseconds after(std::uint32_t attempt, double random) const;
};

/// For jitter: in [0, 1).
double uniform();

}  // namespace corbd
