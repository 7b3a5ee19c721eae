// Time as a port: no other code of the agent asks the system for it, so tests run hours of backoff in microseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "corbd/core/task.hpp"
#include "corbd/core/time.hpp"

namespace corbd {

/// Used on the control thread only.
class Clock {
 public:
  using TimerId = std::uint64_t;

  virtual ~Clock() = default;
  /// Monotonic time. All timers and deadlines use it.
  virtual time_point now() const = 0;
  /// Wall-clock time, for people, logs and records, and for comparison with another machine's clock.
  virtual std::chrono::system_clock::time_point wall() const = 0;
  /// Runs `action` on the control thread at `at` or soon after; never from inside this call.
  virtual TimerId schedule(time_point at, std::function<void()> action) = 0;
  /// Has no effect on a timer that has run. A timer that is due and has not run will not run: its owner may be
  /// destroyed next.
  virtual void cancel(TimerId timer) = 0;
};

std::unique_ptr<Clock> make_real_clock(executor control);

/// A clock that moves only when the test moves it. `wall()` starts at 2026-01-01 and moves along.
class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(executor control);
  ~VirtualClock() override;
  time_point now() const override;
  std::chrono::system_clock::time_point wall() const override;
  TimerId schedule(time_point at, std::function<void()> action) override;
  void cancel(TimerId timer) override;

  /// Posts every timer that is due by then, in order of time.
  void advance(duration by);
  /// Returns the time of the next timer; time_point::max() without one.
  time_point next() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace corbd
