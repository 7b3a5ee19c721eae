// A few threads for library calls that have no asynchronous form (librados, librbd). Never use it for a call that may
// wait for a device of ours: a thread in D state survives SIGKILL and keeps our sockets open. Helper processes make
// such calls.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>

#include "corbd/core/wait.hpp"

namespace corbd {

/// Starts with one thread, and adds one when a job would have to wait. An idle thread ends after `idle_timeout` if
/// another one is idle, too.
class BlockingPool {
 public:
  static constexpr std::chrono::seconds kIdleTimeout{10};

  /// `threads`: the upper bound, at least one.
  BlockingPool(executor control, Clock& clock, std::size_t threads,
               std::chrono::milliseconds idle_timeout = kIdleTimeout);
  /// Waits for every job that was posted, and for its threads.
  ~BlockingPool();

  /// Runs `job` (returning result<T>) on a pool thread. A wait that ends early leaves the job running, and what the job
  /// captured lives until the job ends.
  template <class Job, class R = std::invoke_result_t<Job>>
  task<R> run(Job job, Until until, std::string what) {
    Promise<typename R::value_type> promise(control_, clock_);
    auto future = promise.future();
    post([promise, job = std::move(job)]() mutable { promise.set(job()); });
    co_return co_await future.get(until, std::move(what));
  }

  /// Runs `job` on a pool thread. A caller that waits brings its own promise. Callable from any thread. Jobs start in
  /// the order posted.
  template <class Job>
  void post(Job job) {
    add([kept = std::make_shared<Job>(std::move(job))] { (*kept)(); });
  }

  /// Returns the present number of threads.
  std::size_t threads() const;

 private:
  struct Threads;
  void add(std::function<void()> job);

  executor control_;
  Clock& clock_;
  const std::unique_ptr<Threads> threads_;
};

}  // namespace corbd
