// A few threads for library calls that have no asynchronous form (librados, librbd). Never use it for a call that may
// wait for a device of ours: a thread in D state survives SIGKILL and keeps our sockets open. Helper processes make
// such calls.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <type_traits>

#include "corbd/core/wait.hpp"

namespace corbd {

class BlockingPool {
 public:
  BlockingPool(executor control, Clock& clock, std::size_t threads)
      : control_(control), clock_(clock), threads_(threads) {}
  ~BlockingPool() { threads_.join(); }

  /// Runs `job` (returning result<T>) on a pool thread. A wait that ends early leaves the job running, and what the job
  /// captured lives until the job ends.
  template <class Job, class R = std::invoke_result_t<Job>>
  task<R> run(Job job, Until until, std::string what) {
    Promise<typename R::value_type> promise(control_, clock_);
    auto future = promise.future();
    asio::post(threads_, [promise, job = std::move(job)]() mutable { promise.set(job()); });
    co_return co_await future.get(until, std::move(what));
  }

  /// Runs `job` on a pool thread. The caller has a promise to wait with.
  template <class Job>
  void post(Job job) {
    asio::post(threads_, std::move(job));
  }

 private:
  executor control_;
  Clock& clock_;
  asio::thread_pool threads_;
};

}  // namespace corbd
