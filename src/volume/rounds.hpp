// Looks that a part of the agent takes from time to time, one after another, until the agent leaves.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "corbd/core/gate.hpp"

namespace corbd::volume {

class Rounds {
 public:
  /// `leaving` is cancelled when the agent leaves: the look is to end early.
  using Look = std::function<task<>(std::shared_ptr<CancelScope> leaving)>;
  Rounds(Clock& clock, Gate& gate, Look look) : clock_(clock), gate_(gate), look_(std::move(look)) {}
  ~Rounds() { clock_.cancel(timer_); }
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;
  /// Takes the first look after that time, and each further one `every` after the end of the one before, until the gate
  /// closes.
  void start(duration first, duration every) {
    timer_ = clock_.schedule(clock_.now() + first, [this, every] {
      timer_ = 0;
      gate_.spawn(round(every));
    });
  }
  /// Ends the look that is under way, and prevents others.
  void stop() { leaving_->cancel(); }
  void resume() { leaving_ = std::make_shared<CancelScope>(); }

 private:
  task<> round(duration every) {
    const auto leaving = leaving_;
    if (!leaving->cancelled()) co_await look_(leaving);
    start(every, every);
  }
  Clock& clock_;
  Gate& gate_;
  const Look look_;
  Clock::TimerId timer_ = 0;
  std::shared_ptr<CancelScope> leaving_ = std::make_shared<CancelScope>();
};

}  // namespace corbd::volume
