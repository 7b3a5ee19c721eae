// A control thread for tests: an io_context and a virtual clock that jumps to the next timer when nothing else is left to do.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <optional>

#include "corbd/core/clock.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"

namespace corbd::test {

class Loop {
 public:
  Loop() : clock(io.get_executor()) {}
  executor control() { return io.get_executor(); }

  /// Runs what is ready, without moving time.
  void poll() {
    io.restart();
    while (io.poll() > 0) {
    }
  }
  /// Moves time, stopping at each timer on the way.
  void advance(duration by) {
    const auto end = clock.now() + by;
    poll();
    while (clock.next() <= end) {
      clock.advance(clock.next() - clock.now());
      poll();
    }
    clock.advance(end - clock.now());
    poll();
  }
  /// Runs the task to its end, jumping over waits. Throws when nothing is left that could end it.
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

  asio::io_context io;
  VirtualClock clock;

 private:
  template <class Ended>
  void finish(Ended ended) {
    poll();
    while (!ended()) {
      if (clock.next() == time_point::max()) throw std::runtime_error("the task waits for something that cannot come");
      clock.advance(clock.next() - clock.now());
      poll();
    }
  }
};

}  // namespace corbd::test
