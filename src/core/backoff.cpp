#include "corbd/core/backoff.hpp"

#include <algorithm>
#include <random>

namespace corbd {

std::chrono::milliseconds Backoff::after(std::uint32_t attempt, double random) const {
  const auto shift = std::min<std::uint32_t>(attempt, 30);
  const auto whole = std::min<std::int64_t>(cap.count(), first.count() << shift);
  const auto jittered = static_cast<std::int64_t>(static_cast<double>(whole) * std::max(0.1, random));
  return std::chrono::milliseconds(std::max<std::int64_t>(1, jittered));
}

double uniform() {
  static thread_local std::mt19937_64 engine{std::random_device{}()};
  return std::uniform_real_distribution<double>(0, 1)(engine);
}

Jitter repeatable_jitter(std::uint64_t seed) {
  return [engine = std::mt19937_64(seed)]() mutable { return std::uniform_real_distribution<double>(0, 1)(engine); };
}

}  // namespace corbd
