#include "corbd/core/breaker.hpp"

namespace corbd {

bool Breaker::allows(time_point now) const { return !open() || (under_way_ == 0 && now >= again_at_); }

void Breaker::began() { ++under_way_; }

void Breaker::answered() {
  --under_way_;
  failures_ = 0;
}

void Breaker::unanswered(time_point now, double random) {
  --under_way_;
  // Tries that were under way together failed for one cause, so they count once.
  if (failures_ > 0 && now < again_at_) return;
  again_at_ = now + backoff_.after(failures_++, random);
}

void Breaker::unasked() { --under_way_; }

time_point Breaker::next(time_point now) const {
  return open() && under_way_ == 0 && now < again_at_ ? again_at_ : time_point::max();
}

}  // namespace corbd
