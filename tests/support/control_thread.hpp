// A control thread that runs beside the test, for tests with blocking clients.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "corbd/core/task.hpp"
#include "support/catch.hpp"

namespace corbd::test {

class ControlThread {
 public:
  ControlThread() : work_(io_.get_executor()) {}
  ~ControlThread() { end(); }

  executor control() { return io_.get_executor(); }
  /// Actions before this call need no call().
  void start() {
    thread_ = std::thread([this] { io_.run(); });
  }
  bool runs() const { return thread_.joinable(); }
  /// Runs `action` there, and waits for its end.
  template <class Action>
  void call(Action action) {
    std::promise<void> done;
    asio::post(io_, [&] {
      action();
      done.set_value();
    });
    done.get_future().wait();
  }
  /// Waits for the task's end.
  void finish(task<> work) {
    std::promise<void> ended;
    asio::co_spawn(io_, std::move(work), [&](std::exception_ptr) { ended.set_value(); });
    REQUIRE(ended.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  }
  void end() {
    work_.reset();
    if (thread_.joinable()) thread_.join();
  }

 private:
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace corbd::test
