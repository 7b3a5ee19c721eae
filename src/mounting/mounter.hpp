// A command's manager, with all its real parts.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <memory>
#include <optional>
#include <string>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/helper_pool.hpp"
#include "corbd/manager/manager.hpp"
#include "corbd/mounting/mounting.hpp"

namespace corbd::mounting {

/// One thread runs it. The first SIGINT or SIGTERM cancels the work under way, so that it is undone; a second one ends
/// the process.
class Mounter {
 public:
  explicit Mounter(const Options& ask);
  ~Mounter();
  /// Runs the task to its end.
  template <class T>
  T run(task<T> work) {
    std::optional<T> out;
    std::exception_ptr failed;
    asio::co_spawn(io_, std::move(work), [&](std::exception_ptr error, T value) {
      failed = error;
      if (!error) out.emplace(std::move(value));
      io_.stop();
    });
    io_.restart();
    io_.run();
    if (failed) std::rethrow_exception(failed);
    return std::move(*out);
  }
  manager::Manager& manager() { return *manager_; }
  executor control() { return io_.get_executor(); }
  Clock& clock() { return *clock_; }
  Until within(int seconds);

 private:
  class Ear;
  void listen();

  asio::io_context io_{1};
  std::unique_ptr<Clock> clock_;
  BlockingPool files_;
  HelperPool helpers_;
  std::unique_ptr<manager::Plugin> plugin_;
  std::unique_ptr<manager::Node> node_;
  std::unique_ptr<manager::Claims> claims_;
  std::unique_ptr<Ear> ear_;
  std::unique_ptr<manager::Manager> manager_;
  asio::signal_set signals_;
  CancelScope leaving_;
};

}  // namespace corbd::mounting
