// One cluster's breaker: while the cluster does not answer, one volume asks for all of them. Pure: told the time, keeps
// no timer.
#pragma once

#include "corbd/core/backoff.hpp"
#include "corbd/core/clock.hpp"

namespace corbd::heal {

class Breaker {
 public:
  explicit Breaker(Backoff backoff = {}) : backoff_(backoff) {}

  /// Whether a try may go out now. While the breaker is open that is one, when its time has come, until it ended.
  bool allows(time_point now) const;
  /// A try went out.
  void began();
  /// It ended: the cluster answered, whatever it said.
  void answered();
  /// It ended without an answer. random: uniform in [0, 1).
  void unanswered(time_point now, double random);
  /// It ended before it asked the cluster anything.
  void unasked();

  bool open() const { return failures_ > 0; }
  /// When allows() may change by itself; max() if it does not.
  time_point next(time_point now) const;

 private:
  Backoff backoff_;
  std::uint32_t failures_ = 0;
  std::size_t under_way_ = 0;
  time_point again_at_{};
};

}  // namespace corbd::heal
