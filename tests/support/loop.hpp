// A control thread for tests: an io_context and a virtual clock that jumps to the next timer when nothing else is left
// to do. Events outside of the agent (kernel, cluster, other nodes) have a queue of their own on the same time, which
// outlives the agent.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "corbd/core/clock.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"

namespace corbd::test {

/// Thrown when the agent dies in the middle of a step; the world stays.
struct Crash : std::runtime_error {
  Crash() : std::runtime_error("crash") {}
};

/// Can die as a process does: every coroutine ends at its present place.
class Io : public asio::io_context {
 public:
  void die() {
    // Handlers that a dying coroutine wakes are queued again, and may wake others when they go.
    constexpr int chain = 32;
    for (int i = 0; i < chain; ++i) shutdown();
  }

 private:
  /// With this, an empty poll does not stop the context, which would cost more than the poll.
  asio::executor_work_guard<executor_type> work_{get_executor()};
};

/// A virtual clock whose wall time can jump; timers must not care.
class JumpingClock final : public Clock {
 public:
  explicit JumpingClock(executor control) : inner_(std::make_unique<VirtualClock>(std::move(control))) {}
  time_point now() const override { return inner_->now(); }
  std::chrono::system_clock::time_point wall() const override { return inner_->wall() + wall_offset; }
  TimerId schedule(time_point at, std::function<void()> action) override {
    return inner_->schedule(at, std::move(action));
  }
  void cancel(TimerId timer) override { inner_->cancel(timer); }
  void advance(duration by) { inner_->advance(by); }
  time_point next() const { return inner_->next(); }
  /// Serves another process from now on, at the same time.
  void renew(executor control) {
    const auto then = now();
    inner_ = std::make_unique<VirtualClock>(std::move(control));
    inner_->advance(then - inner_->now());
  }
  std::chrono::seconds wall_offset{0};

 private:
  std::unique_ptr<VirtualClock> inner_;
};

class Loop {
 public:
  Loop() : clock(io.get_executor()) {}
  executor control() { return io.get_executor(); }

  /// Runs `action` outside of the agent at that time, whichever agent lives then.
  void outside(time_point at, std::function<void()> action) { outside_.emplace(at, std::move(action)); }
  void outside_in(duration in, std::function<void()> action) { outside(clock.now() + in, std::move(action)); }

  /// Ends the agent's process here: nothing of it runs any more.
  void crash() {
    crashed_ = true;
    io.stop();
  }
  bool crashed() const { return crashed_; }
  /// Ends every coroutine. Objects that they used are destroyed after this call, and before renew().
  void die() { io.die(); }
  /// Starts a fresh process, at the same time.
  void renew() {
    std::destroy_at(&io);
    std::construct_at(&io);
    clock.renew(io.get_executor());
    crashed_ = false;
  }

  /// Joins another process's loop on the same time: a step of either steps all joined loops.
  void stand_beside(Loop& other) {
    auto all = beside_;
    all.push_back(this);
    for (Loop* one : all) {
      one->beside_.push_back(&other);
      other.beside_.push_back(one);
    }
  }

  /// Runs handlers that are ready, without moving time.
  void poll() {
    poll_own();
    for (Loop* one : beside_) one->poll_own();
  }
  /// Returns the time of the next event; max() if never.
  time_point next() const {
    auto first = next_own();
    for (const Loop* one : beside_) first = std::min(first, one->next_own());
    return first;
  }
  /// Moves to the next event, at most to `limit`, and runs it.
  void step(time_point limit = time_point::max()) {
    const auto at = std::min(next(), limit);
    go_to(at);
    for (Loop* one : beside_) one->go_to(at);
    run_what_is_due();
    for (Loop* one : beside_) one->run_what_is_due();
  }
  /// Moves time, stopping at each timer on the way.
  void advance(duration by) {
    const auto end = clock.now() + by;
    poll();
    while (clock.now() < end && !crashed_) step(end);
  }
  /// Lets the machine stand still for that long: every timer on the way is late.
  void leap(duration by) {
    clock.advance(by);
    for (Loop* one : beside_) one->clock.advance(by);
    step(clock.now());
  }
  /// Runs the task to its end, jumping over waits. Throws if nothing is left that could end it, and if the agent
  /// crashes in it.
  template <class T>
  T run(task<T> work) {
    std::optional<T> out;
    std::exception_ptr failed;
    asio::co_spawn(io, std::move(work), [&](std::exception_ptr error, T value) {
      failed = error;
      if (!error) out.emplace(std::move(value));
    });
    finish([&] { return failed || out; });
    if (failed) std::rethrow_exception(failed);
    return std::move(*out);
  }
  void run(task<void> work) {
    bool done = false;
    std::exception_ptr failed;
    asio::co_spawn(io, std::move(work), [&](std::exception_ptr error) {
      failed = error;
      done = true;
    });
    finish([&] { return done; });
    if (failed) std::rethrow_exception(failed);
  }

  Io io;
  JumpingClock clock;

 private:
  void poll_own() {
    if (!crashed_) io.poll();
  }
  time_point next_own() const {
    return std::min(clock.next(), outside_.empty() ? time_point::max() : outside_.begin()->first);
  }
  void go_to(time_point at) {
    if (at > clock.now()) clock.advance(at - clock.now());
  }
  void run_what_is_due() {
    while (!outside_.empty() && outside_.begin()->first <= clock.now()) {
      const auto happens = outside_.extract(outside_.begin());
      happens.mapped()();
      poll();
    }
    poll();
  }
  template <class Ended>
  void finish(Ended ended) {
    poll();
    while (!ended()) {
      if (crashed_) throw Crash();
      if (next() == time_point::max()) throw std::runtime_error("the task waits for something that cannot come");
      step();
    }
  }

  std::multimap<time_point, std::function<void()>> outside_;
  bool crashed_ = false;
  std::vector<Loop*> beside_;
};

}  // namespace corbd::test
