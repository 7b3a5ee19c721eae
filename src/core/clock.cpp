#include "corbd/core/clock.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "corbd/core/expect.hpp"

namespace corbd {
namespace {

class RealClock final : public Clock {
 public:
  explicit RealClock(executor control) : control_(std::move(control)) {}

  time_point now() const override { return std::chrono::steady_clock::now(); }
  std::chrono::system_clock::time_point wall() const override { return std::chrono::system_clock::now(); }

  TimerId schedule(time_point at, std::function<void()> action) override {
    expect_control_thread();
    const TimerId id = ++last_;
    auto [place, added] = timers_.emplace(id, asio::steady_timer(control_, at));
    place->second.async_wait([this, id, action = std::move(action)](boost::system::error_code failed) {
      // A handler that was already queued when its timer was cancelled must not run, because its owner may be
      // destroyed.
      if (failed || timers_.erase(id) == 0) return;
      action();
    });
    return id;
  }
  void cancel(TimerId timer) override { timers_.erase(timer); }

 private:
  executor control_;
  TimerId last_ = 0;
  std::unordered_map<TimerId, asio::steady_timer> timers_;
};

}  // namespace

std::unique_ptr<Clock> make_real_clock(executor control) { return std::make_unique<RealClock>(std::move(control)); }

struct VirtualClock::State {
  executor control;
  time_point start{std::chrono::hours(1)};
  time_point now{start};
  TimerId last = 0;
  std::multimap<time_point, std::pair<TimerId, std::function<void()>>> timers;
  std::shared_ptr<std::unordered_set<TimerId>> posted = std::make_shared<std::unordered_set<TimerId>>();

  void post(TimerId id, std::function<void()> action) const {
    posted->insert(id);
    asio::post(control, [posted = posted, id, action = std::move(action)] {
      if (posted->erase(id) != 0) action();
    });
  }
};

VirtualClock::VirtualClock(executor control) : state_(std::make_unique<State>()) {
  state_->control = std::move(control);
}
VirtualClock::~VirtualClock() = default;

time_point VirtualClock::now() const { return state_->now; }

std::chrono::system_clock::time_point VirtualClock::wall() const {
  using namespace std::chrono;
  return system_clock::time_point(sys_days(year(2026) / 1 / 1)) +
         duration_cast<system_clock::duration>(state_->now - state_->start);
}

Clock::TimerId VirtualClock::schedule(time_point at, std::function<void()> action) {
  const TimerId id = ++state_->last;
  if (at <= state_->now)
    state_->post(id, std::move(action));
  else
    state_->timers.emplace(at, std::pair(id, std::move(action)));
  return id;
}

void VirtualClock::cancel(TimerId timer) {
  state_->posted->erase(timer);
  std::erase_if(state_->timers, [timer](const auto& entry) { return entry.second.first == timer; });
}

void VirtualClock::advance(duration by) {
  const time_point until = state_->now + by;
  while (!state_->timers.empty() && state_->timers.begin()->first <= until) {
    auto entry = state_->timers.extract(state_->timers.begin());
    state_->now = entry.key();
    state_->post(entry.mapped().first, std::move(entry.mapped().second));
  }
  state_->now = until;
}

time_point VirtualClock::next() const {
  return state_->timers.empty() ? time_point::max() : state_->timers.begin()->first;
}

}  // namespace corbd
