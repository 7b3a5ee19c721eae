// A link's figures while they grow. One thread adds, which needs no locked instruction; any thread reads.
#pragma once

#include <algorithm>
#include <atomic>

#include "codec.hpp"
#include "corbd/device/figures.hpp"
#include "link_state.hpp"

namespace corbd::nbd {

inline device::RequestKind kind_of(Command command) {
  switch (command) {
    case Command::read:
      return device::RequestKind::read;
    case Command::write:
      return device::RequestKind::write;
    case Command::trim:
    case Command::write_zeroes:
      return device::RequestKind::discard;
    case Command::flush:
    case Command::disconnect:
      break;
  }
  return device::RequestKind::flush;
}

class LinkStats {
 public:
  /// Called by the thread that serves the link. `micros`: the latency.
  void ended(const Request& request, std::int64_t micros, bool failed) {
    auto& one = by_.at(static_cast<std::size_t>(kind_of(request.command)));
    const auto took = static_cast<std::uint64_t>(std::max<std::int64_t>(micros, 0));
    add(one.requests, 1);
    add(one.bytes, request.length);
    if (failed) add(one.errors, 1);
    add(one.micros, took);
    add(one.latency.at(bucket_of(took)), 1);
  }
  void was_slow() { add(slow_, 1); }
  /// The reader stands still for lack of budget between these two calls. Both may be repeated.
  void stands_still() {
    if (const auto sum = still_us_.load(std::memory_order_relaxed); sum >= 0) still_us_ = sum - now_us();
  }
  void reads_on() {
    if (const auto sum = still_us_.load(std::memory_order_relaxed); sum < 0) still_us_ = sum + now_us();
  }

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
    now.still_micros = stood_still();
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
  /// Includes the wait under way. A clock that was read after the end of that wait would give a figure that falls
  /// later.
  std::uint64_t stood_still() const {
    std::int64_t still = 0, now = 0;
    do {
      still = still_us_.load(std::memory_order_acquire);
      now = now_us();
    } while (still_us_.load(std::memory_order_acquire) != still);
    return static_cast<std::uint64_t>(still < 0 ? still + now : still);
  }
  static std::uint64_t get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }
  static std::size_t bucket_of(std::uint64_t micros) {
    const double seconds = static_cast<double>(micros) / 1e6;
    const auto& bounds = device::kLatencyBounds;
    return static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin());
  }

  std::array<One, device::kRequestKinds.size()> by_{};
  Counter slow_{0};
  /// Sum of the waits. During a wait its begin is subtracted: the value is negative then, because a sum is less than
  /// the clock.
  std::atomic<std::int64_t> still_us_{0};
};

}  // namespace corbd::nbd
