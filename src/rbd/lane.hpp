// Blocking library calls of one cluster: on the pool, a few at a time, so that a cluster which does not answer cannot take all its threads.
#pragma once

#include "corbd/core/async_lock.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"

namespace corbd::rbd {

/// Control thread only. Outlives the gates given to it.
class Lane {
 public:
  Lane(executor control, Clock& clock, BlockingPool& pool, std::string what, std::size_t at_once)
      : control_(control), clock_(clock), pool_(pool), slots_(control, clock, std::move(what), at_once) {}

  /// A waiter that leaves leaves the job running; it keeps its slot, and `gate` open, until it has ended. So what the job uses may be
  /// freed after the gate closed.
  template <class Job, class R = std::invoke_result_t<Job>>
  task<R> call(Gate& gate, Job job, Until until, std::string what) {
    auto slot = co_await slots_.take(until);
    if (!slot) co_return with_context(what, slot.error());
    Promise<typename R::value_type> promise(control_, clock_);
    const auto future = promise.future();
    if (!gate.spawn(carry<Job, R>(pool_, std::move(*slot), std::move(job), promise, what)))
      co_return Error{errc::cancelled, what + ": it is being closed"};
    co_return co_await future.get(until, std::move(what));
  }

 private:
  template <class Job, class R>
  static task<> carry(BlockingPool& pool, [[maybe_unused]] Slots::Guard slot, Job job, Promise<typename R::value_type> promise,
                      std::string what) {
    promise.set(co_await pool.run(std::move(job), {}, std::move(what)));
  }

  executor control_;
  Clock& clock_;
  BlockingPool& pool_;
  Slots slots_;
};

/// Two per cluster: what a monitor answers ends by mon_timeout; a call on an image may wait as long as its placement group is down, and must
/// not keep connections from being made.
struct Lanes {
  Lanes(executor control, Clock& clock, BlockingPool& pool, const std::string& cluster_id)
      : cluster(control, clock, pool, "a free thread for cluster " + cluster_id, 2),
        images(control, clock, pool, "a free thread for images of cluster " + cluster_id, 4) {}
  Lane cluster;
  Lane images;
};

}  // namespace corbd::rbd
