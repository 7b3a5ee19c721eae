// While a server (a cluster, a KMS) does not answer, one caller tries on behalf of all. Pure: the caller passes the
// time and keeps the timer.
#pragma once

#include "corbd/core/backoff.hpp"
#include "corbd/core/clock.hpp"

namespace corbd {

class Breaker {
 public:
  explicit Breaker(Backoff backoff = {}) : backoff_(backoff) {}

  /// Whether a try may go out now. An open breaker allows one try at a time, once its backoff has passed.
  bool allows(time_point now) const;
  /// Call this when a try goes out.
  void began();
  /// Call this when a try ended and the server answered, whatever the answer.
  void answered();
  /// Call this when a try ended without an answer. random: uniform in [0, 1).
  void unanswered(time_point now, double random);
  /// Call this when a try ended before it asked the server anything.
  void unasked();

  bool open() const { return failures_ > 0; }
  bool idle() const { return under_way_ == 0; }
  /// Returns when allows() may change by itself; max() if never.
  time_point next(time_point now) const;

 private:
  Backoff backoff_;
  std::uint32_t failures_ = 0;
  std::size_t under_way_ = 0;
  time_point again_at_{};
};

}  // namespace corbd
