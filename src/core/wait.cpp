#include "corbd/core/wait.hpp"

#include <algorithm>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "corbd/core/expect.hpp"

namespace corbd {

Error wait_error(Waited how, std::string_view what) {
  if (how == Waited::cancelled) return {errc::cancelled, "gave up waiting for " + std::string(what)};
  return {errc::timed_out, "the deadline passed while waiting for " + std::string(what)};
}

Until Until::at_most(time_point limit) const { return {std::min(deadline, limit), scope}; }

struct Event::Waiter {
  explicit Waiter(const executor& control) : signal(control) {}
  /// Carries no message: cancelling it resumes the waiter. Unlike a timer it needs no reactor.
  asio::experimental::channel<void(boost::system::error_code)> signal;
  Waited how = Waited::cancelled;
  Clock::TimerId timer = 0;
  CancelScope* scope = nullptr;
  CancelScope::Hook hook;
};

Event::Event(executor control, Clock& clock) : control_(std::move(control)), clock_(clock) {}

Event::~Event() {
  while (!waiters_.empty()) finish(*waiters_.front(), Waited::cancelled);
}

void Event::set() {
  expect_control_thread();
  set_ = true;
  while (!waiters_.empty()) finish(*waiters_.front(), Waited::ready);
}

void Event::finish(Waiter& waiter, Waited how) {
  const auto place =
      std::find_if(waiters_.begin(), waiters_.end(), [&](const auto& entry) { return entry.get() == &waiter; });
  if (place == waiters_.end()) return;
  const auto keep = *place;
  waiters_.erase(place);
  if (keep->timer != 0) clock_.cancel(keep->timer);
  if (keep->scope != nullptr) keep->scope->forget(keep->hook);
  keep->how = how;
  keep->signal.cancel();
}

task<Waited> Event::wait(Until until) {
  expect_control_thread();
  if (set_) co_return Waited::ready;
  if (until.scope != nullptr && until.scope->cancelled()) co_return Waited::cancelled;
  if (until.deadline <= clock_.now()) co_return Waited::deadline;
  const auto waiter = std::make_shared<Waiter>(control_);
  Waiter* raw = waiter.get();
  if (until.deadline != time_point::max())
    waiter->timer = clock_.schedule(until.deadline, [this, weak = std::weak_ptr(waiter)] {
      if (const auto alive = weak.lock()) finish(*alive, Waited::deadline);
    });
  if (until.scope != nullptr) {
    waiter->scope = until.scope;
    waiter->hook = until.scope->on_cancel([this, raw] { finish(*raw, Waited::cancelled); });
  }
  waiters_.push_back(waiter);
  boost::system::error_code cancelled_as_meant;
  co_await waiter->signal.async_receive(asio::redirect_error(asio::use_awaitable, cancelled_as_meant));
  co_return waiter->how;
}

CancelScope::CancelScope(CancelScope* parent) : parent_(parent) {
  if (parent_ == nullptr) return;
  cancelled_ = parent_->cancelled();
  in_parent_ = parent_->on_cancel([this] { cancel(); });
}

CancelScope::~CancelScope() {
  if (parent_ != nullptr) parent_->forget(in_parent_);
}

void CancelScope::cancel() {
  expect_control_thread();
  cancelled_ = true;
  // Move it out first. A hook may remove itself or others, and removed hooks must not run.
  while (!hooks_.empty()) {
    called_.splice(called_.begin(), hooks_, hooks_.begin());
    const auto hook = called_.front();
    hook();
  }
}

CancelScope::Hook CancelScope::on_cancel(std::function<void()> hook) {
  expect_control_thread();
  return hooks_.insert(hooks_.end(), std::move(hook));
}

void CancelScope::forget(Hook hook) {
  for (auto* list : {&hooks_, &called_})
    for (auto place = list->begin(); place != list->end(); ++place)
      if (place == hook) {
        list->erase(place);
        return;
      }
}

task<Waited> sleep_until(executor control, Clock& clock, time_point at, CancelScope* scope) {
  Event never(control, clock);
  Until until;
  until.deadline = at;
  until.scope = scope;
  co_return co_await never.wait(until);
}

}  // namespace corbd
