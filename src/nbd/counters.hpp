// Counts of this room, and the limit of slow requests. Any thread.
#pragma once

#include <algorithm>
#include <atomic>

#include "corbd/core/time.hpp"
#include "corbd/device/counters.hpp"

namespace corbd::nbd {

class Counters {
 public:
  Counters() = default;
  explicit Counters(duration slow) : slow_us(std::chrono::duration_cast<std::chrono::microseconds>(slow).count()) {}

  const std::int64_t slow_us = 0;  ///< limit from which a request is slow; 0: none is

  void add(device::Count count) { add(counts_.of(count)); }
  void add_request(std::size_t command) { add(counts_.requests.at(command)); }

  std::uint64_t of(device::Count count) const { return counts_.of(count); }
  device::Counters read() const {
    device::Counters now;
    std::ranges::copy(counts_.requests, now.requests.begin());
    std::ranges::copy(counts_.by, now.by.begin());
    return now;
  }

 private:
  using Number = std::atomic<std::uint64_t>;
  static void add(Number& number) { number.fetch_add(1, std::memory_order_relaxed); }

  device::Counts<Number> counts_;
};

}  // namespace corbd::nbd
