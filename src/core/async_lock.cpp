#include "corbd/core/async_lock.hpp"

#include <algorithm>
#include <cassert>

#include "corbd/core/expect.hpp"

namespace corbd {
namespace {

/// Waits in the queue for its event. A waiter that leaves after it got the turn keeps it (Waited::ready wins).
task<Waited> queue_up(std::deque<std::shared_ptr<Event>>& queue, std::shared_ptr<Event> turn, Until until) {
  queue.push_back(turn);
  const Waited how = co_await turn->wait(until);
  if (how == Waited::ready || turn->is_set()) co_return Waited::ready;
  std::erase(queue, turn);
  co_return how;
}

void wake_first(std::deque<std::shared_ptr<Event>>& queue) {
  const auto first = queue.front();
  queue.pop_front();
  first->set();
}

}  // namespace

AsyncLock::AsyncLock(executor control, Clock& clock, std::string what, std::size_t max_waiters)
    : control_(std::move(control)), clock_(clock), what_(std::move(what)), max_waiters_(max_waiters) {}

// Not an expectation: the simulator destroys the memory of an agent that it kills.
AsyncLock::~AsyncLock() { assert(!held_ && queue_.empty()); }

task<result<AsyncLock::Guard>> AsyncLock::lock(Until until) {
  expect_control_thread();
  if (!held_) {
    held_ = true;
    co_return Guard(this);
  }
  if (queue_.size() >= max_waiters_)
    co_return Error{errc::exhausted,
                    std::to_string(queue_.size()) + " callers already wait for " + what_ + ": repeat later"};
  const Waited how = co_await queue_up(queue_, std::make_shared<Event>(control_, clock_), until);
  if (how != Waited::ready) co_return wait_error(how, what_);
  co_return Guard(this);
}

void AsyncLock::unlock() {
  expect_control_thread();
  expect(held_, "a lock that is given back is held");
  if (queue_.empty())
    held_ = false;
  else
    wake_first(queue_);
}

void AsyncLock::Guard::release() {
  if (lock_ != nullptr) std::exchange(lock_, nullptr)->unlock();
}

Slots::Slots(executor control, Clock& clock, std::string what, std::size_t n)
    : control_(std::move(control)), clock_(clock), what_(std::move(what)), free_(n) {}

task<result<Slots::Guard>> Slots::take(Until until) {
  expect_control_thread();
  if (free_ > 0) {
    --free_;
    co_return Guard(this);
  }
  const Waited how = co_await queue_up(queue_, std::make_shared<Event>(control_, clock_), until);
  if (how != Waited::ready) co_return wait_error(how, what_);
  co_return Guard(this);
}

void Slots::give() {
  expect_control_thread();
  if (queue_.empty())
    ++free_;
  else
    wake_first(queue_);
}

void Slots::Guard::release() {
  if (slots_ != nullptr) std::exchange(slots_, nullptr)->give();
}

}  // namespace corbd
