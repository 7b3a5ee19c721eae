// Counters of this room, and what it is to look for. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "corbd/device/device.hpp"

namespace corbd::nbd {

struct Probe {
  Probe() = default;
  explicit Probe(duration slow) : slow_us(std::chrono::duration_cast<std::chrono::microseconds>(slow).count()) {}

  const std::int64_t slow_us = 0;  ///< a request that takes longer is slow; 0: none is
  using Counter = std::atomic<std::uint64_t>;
  std::array<Counter, 7> requests{};  ///< for the image, by NBD command number
  Counter refused{0};                 ///< answered with an error without asking the image
  Counter image_errors{0};            ///< answered with the image's error
  Counter held{0};                    ///< links shut because of an error of the connection
  Counter broken{0};                  ///< links shut because the peer did not speak the protocol
  Counter budget_waits{0};            ///< times a reader stopped because too much was in flight
  Counter links_dead{0};              ///< dead links the kernel told of

  static void add(Counter& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

  device::Counters read() const {
    device::Counters now;
    for (std::size_t i = 0; i < requests.size(); ++i) now.requests.at(i) = requests.at(i);
    now.refused = refused;
    now.image_errors = image_errors;
    now.held = held;
    now.broken = broken;
    now.budget_waits = budget_waits;
    now.links_dead = links_dead;
    return now;
  }
};

}  // namespace corbd::nbd
