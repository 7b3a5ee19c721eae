// Runs blocking library calls of one cluster, on that cluster's own threads, a few at a time. So a cluster that does
// not answer takes nothing from the others.
#pragma once

#include "corbd/core/async_lock.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"

namespace corbd::rbd {

/// Control thread only. Outlives the gates given to it.
class BlockingCalls {
 public:
  /// Limit of call_to_end()'s wait for a thread.
  static constexpr std::chrono::seconds kPatience{60};

  /// `whose` is for texts: "cluster lab".
  BlockingCalls(executor control, Clock& clock, BlockingPool& pool, const std::string& whose, std::size_t at_once)
      : control_(control),
        clock_(clock),
        pool_(pool),
        at_once_(at_once),
        slots_(control, clock,
               "one of the " + std::to_string(at_once) + " threads for " + whose +
                   ", which all wait for the cluster: see `ceph health detail`",
               at_once) {}

  /// If the waiter leaves, the job goes on. It keeps its slot, and keeps `gate` open, until it has ended. So objects
  /// that the job uses may be freed once the gate has closed. A `turn` is taken before the slot and kept as long, so
  /// that its holder takes no second thread.
  template <class Job, class R = std::invoke_result_t<Job>>
  task<R> call(Gate& gate, Job job, Until until, std::string what, Slots* turn = nullptr) {
    co_return co_await run<Job, R>(gate, std::move(job), until, until, std::move(what), turn);
  }

  /// Waits for a thread, then for the end of the job. A caller that must not give up has no limit for the thread.
  template <class Job, class R = std::invoke_result_t<Job>>
  task<R> call_to_end(Gate& gate, Job job, std::string what, bool may_give_up = true) {
    Until for_thread;
    if (may_give_up) for_thread.deadline = clock_.now() + kPatience;
    co_return co_await run<Job, R>(gate, std::move(job), for_thread, {}, std::move(what), nullptr);
  }

  /// Whether nobody waits for a thread or has one.
  bool idle() const { return *entered_ == 0 && slots_.free() == at_once_; }

 private:
  template <class Job, class R>
  task<R> run(Gate& gate, Job job, Until for_thread, Until until, std::string what, Slots* turn) {
    const Entered here(entered_);
    Slots::Guard mine;
    if (turn != nullptr) {
      auto taken = co_await turn->take(for_thread);
      if (!taken) co_return with_context(what, taken.error());
      mine = std::move(*taken);
    }
    auto slot = co_await slots_.take(for_thread);
    if (!slot) co_return with_context(what, slot.error());
    Promise<typename R::value_type> promise(control_, clock_);
    const auto future = promise.future();
    if (!gate.spawn(carry<Job, R>(pool_, std::move(mine), std::move(*slot), std::move(job), promise, what)))
      co_return Error{errc::cancelled, what + ": it is being closed"};
    co_return co_await future.get(until, std::move(what));
  }

  template <class Job, class R>
  static task<> carry(BlockingPool& pool, [[maybe_unused]] Slots::Guard turn, [[maybe_unused]] Slots::Guard slot,
                      Job job, Promise<typename R::value_type> promise, std::string what) {
    promise.set(co_await pool.run(std::move(job), {}, std::move(what)));
  }

  /// A call that waits for a thread or has one. Calls that are never resumed go after the threads.
  class Entered {
   public:
    explicit Entered(std::shared_ptr<std::size_t> count) : count_(std::move(count)) { ++*count_; }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    ~Entered() { --*count_; }

   private:
    std::shared_ptr<std::size_t> count_;
  };

  executor control_;
  Clock& clock_;
  BlockingPool& pool_;
  const std::size_t at_once_;
  const std::shared_ptr<std::size_t> entered_ = std::make_shared<std::size_t>(0);
  Slots slots_;
};

}  // namespace corbd::rbd
