// Computes how long to wait before the next try. The function is pure; the random numbers that spread the waits are
// passed in.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace corbd {

/// Exponential backoff with full jitter: uniform in (0, min(cap, first * 2^attempt)], and at least a tenth of that, so
/// that no try is immediate.
struct Backoff {
  std::chrono::milliseconds first{1000};
  std::chrono::milliseconds cap{60000};

  /// attempt: 0 for the wait after the first failure. random: uniform in [0, 1).
  std::chrono::milliseconds after(std::uint32_t attempt, double random) const;
};

/// A source of random numbers for jitter, in [0, 1).
using Jitter = std::function<double()>;
/// Draws from the agent's one generator. It is seeded with the system's entropy, so no two nodes draw the same numbers.
/// Any thread.
double uniform();
/// Gives the same numbers in every run, so that a test can be repeated.
Jitter repeatable_jitter(std::uint64_t seed);

}  // namespace corbd
