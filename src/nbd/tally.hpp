// A link's figures while they grow. One thread adds, which needs no locked instruction; any thread reads.
#pragma once

#include <algorithm>
#include <atomic>

#include "codec.hpp"
#include "corbd/device/figures.hpp"

namespace corbd::nbd {

inline device::Operation operation_of(Command command) {
  switch (command) {
    case Command::read:
      return device::Operation::read;
    case Command::write:
      return device::Operation::write;
    case Command::trim:
    case Command::write_zeroes:
      return device::Operation::discard;
    case Command::flush:
    case Command::disconnect:
      break;
  }
  return device::Operation::flush;
}

class Tally {
 public:
  /// The thread that serves the link. `micros`: the latency.
  void ended(const Request& request, std::int64_t micros, bool failed) {
    auto& one = by_.at(static_cast<std::size_t>(operation_of(request.command)));
    const auto took = static_cast<std::uint64_t>(std::max<std::int64_t>(micros, 0));
    add(one.requests, 1);
    add(one.bytes, request.length);
    if (failed) add(one.errors, 1);
    add(one.micros, took);
    add(one.latency.at(bucket_of(took)), 1);
  }
  void was_slow() { add(slow_, 1); }

  device::Figures read() const {
    device::Figures now;
    for (std::size_t i = 0; i < by_.size(); ++i) {
      const auto& one = by_.at(i);
      auto& into = now.by.at(i);
      into.requests = get(one.requests);
      into.bytes = get(one.bytes);
      into.errors = get(one.errors);
      into.micros = get(one.micros);
      for (std::size_t k = 0; k < one.latency.size(); ++k) into.latency.at(k) = get(one.latency.at(k));
    }
    now.slow = get(slow_);
    return now;
  }

 private:
  using Counter = std::atomic<std::uint64_t>;
  struct One {
    Counter requests{0}, bytes{0}, errors{0}, micros{0};
    std::array<Counter, device::kLatencyBounds.size() + 1> latency{};
  };
  static void add(Counter& counter, std::uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  static std::uint64_t get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }
  static std::size_t bucket_of(std::uint64_t micros) {
    const double seconds = static_cast<double>(micros) / 1e6;
    const auto& bounds = device::kLatencyBounds;
    return static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin());
  }

  std::array<One, device::kOperations.size()> by_{};
  Counter slow_{0};
};

}  // namespace corbd::nbd
