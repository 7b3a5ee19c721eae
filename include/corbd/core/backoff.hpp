// How long to wait before the next try: a pure function, and the random numbers that spread it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace corbd {

/// Full jitter: uniform in (0, min(cap, first * 2^attempt)], at least a tenth of it so that no try is immediate.
struct Backoff {
  std::chrono::milliseconds first{1000};
  std::chrono::milliseconds cap{60000};

  /// attempt: 0 for the wait after the first failure. random: uniform in [0, 1).
  std::chrono::milliseconds after(std::uint32_t attempt, double random) const;
};

/// A source of random numbers for jitter, in [0, 1).
using Jitter = std::function<double()>;
/// The agent's one generator, seeded by the system's entropy: no two nodes draw the same. Any thread.
double uniform();
/// Gives the same numbers in every run, so that a test can be repeated.
Jitter repeatable_jitter(std::uint64_t seed);

}  // namespace corbd
