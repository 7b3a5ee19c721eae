// Waits have a limit in time, and a scope that can be cancelled. A wait never throws. It returns how it ended.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "corbd/core/clock.hpp"
#include "corbd/core/result.hpp"

namespace corbd {

enum class Waited { ready, deadline, cancelled };

/// Makes the error for a wait that did not end with ready. `what` names the object waited for.
Error wait_error(Waited how, std::string_view what);

class CancelScope;

/// Limit of a wait: until a time, or until the scope is cancelled. Default: no limit.
struct Until {
  time_point deadline = time_point::max();
  CancelScope* scope = nullptr;

  /// Returns the same scope with a deadline no later than `limit`.
  Until at_most(time_point limit) const;
};

/// A one-shot condition with any number of waiters, woken in the order they came. Control thread only.
class Event {
 public:
  Event(executor control, Clock& clock);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool is_set() const { return set_; }
  /// Wakes all waiters, now and later. Idempotent.
  void set();
  task<Waited> wait(Until until);
  std::size_t waiters() const { return waiters_.size(); }

 private:
  struct Waiter;
  void finish(Waiter& waiter, Waited how);
  bool set_ = false;
  executor control_;
  Clock& clock_;
  std::list<std::shared_ptr<Waiter>> waiters_;
};

/// Cancels every wait and every scope that was made under it. Control thread only. Outlives its waits.
class CancelScope {
 public:
  explicit CancelScope(CancelScope* parent = nullptr);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  void cancel();
  bool cancelled() const { return cancelled_; }

  using Hook = std::list<std::function<void()>>::iterator;
  Hook on_cancel(std::function<void()> hook);
  void forget(Hook hook);

 private:
  bool cancelled_ = false;
  CancelScope* parent_;
  Hook in_parent_;
  std::list<std::function<void()>> hooks_;
  std::list<std::function<void()>> called_;  ///< have run already, and may still be forgotten
};

/// Sleeps. Returns Waited::deadline when the time is up.
task<Waited> sleep_until(executor control, Clock& clock, time_point at, CancelScope* scope = nullptr);

/// A value that some other thread, or a callback, will deliver once. The producer side may outlive the waiter and the
/// other way round.
template <class T>
class Promise;

template <class T>
class Future {
 public:
  /// Returns the value, or an error if the wait ended first. A value that comes later is dropped. For one waiter.
  task<result<T>> get(Until until, std::string what) const {
    auto shared = shared_;
    const Waited how = co_await shared->event.wait(until);
    if (how != Waited::ready) co_return wait_error(how, what);
    co_return std::move(*shared->value);
  }

 private:
  friend class Promise<T>;
  struct Shared {
    Shared(executor control, Clock& clock) : event(control, clock) {}
    Event event;
    std::optional<result<T>> value;
  };
  explicit Future(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

}  // namespace corbd

#include <boost/asio/post.hpp>

namespace corbd {

template <class T>
class Promise {
 public:
  Promise(executor control, Clock& clock)
      : control_(control), shared_(std::make_shared<typename Future<T>::Shared>(control, clock)) {}
  Future<T> future() const { return Future<T>(shared_); }
  /// Callable from any thread. Only the first call counts.
  void set(result<T> value) const {
    asio::post(control_, [shared = shared_, value = std::move(value)]() mutable {
      if (shared->value) return;
      shared->value.emplace(std::move(value));
      shared->event.set();
    });
  }

 private:
  executor control_;
  std::shared_ptr<typename Future<T>::Shared> shared_;
};

}  // namespace corbd
