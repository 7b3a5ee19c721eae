// A helper pool of the test's own helper processes, on real descriptors and a clock that moves only when told.
#pragma once

#include <chrono>
#include <thread>

#include "corbd/core/helper_pool.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/loop.hpp"

namespace corbd::test {

/// A task that runs beside the test; its value is set once done.
template <class T>
class Started {
 public:
  Started(asio::io_context& io, task<T> work) : io_(io), shared_(std::make_shared<State>()) {
    asio::co_spawn(io, std::move(work), [shared = shared_](std::exception_ptr error, T value) {
      shared->failed = error;
      if (!error) shared->value.emplace(std::move(value));
    });
    io.restart();
    io.poll();
  }
  bool done() const { return shared_->value || shared_->failed; }
  T& get() {
    if (!eventually(io_, [this] { return done(); })) throw std::runtime_error("the task did not end");
    if (shared_->failed) std::rethrow_exception(shared_->failed);
    return *shared_->value;
  }

 private:
  struct State {
    std::optional<T> value;
    std::exception_ptr failed;
  };
  asio::io_context& io_;
  std::shared_ptr<State> shared_;
};

inline HelperPool::Config helper_child(const std::string& program, std::size_t max_helpers = 4) {
  HelperPool::Config config;
  config.program = program;
  config.max_helpers = max_helpers;
  return config;
}

}  // namespace corbd::test
