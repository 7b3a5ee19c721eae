// While a server (a cluster, a KMS) does not answer, one asks for all. Pure: the caller passes
// the time and keeps the timer.
#pragma once

#include "corbd/core/backoff.hpp"
#include "corbd/core/clock.hpp"

namespace corbd {

class Breaker {
 public:
  explicit Breaker(Backoff backoff = {}) : backoff_(backoff) {}

  /// Whether a try may go out now. An open breaker allows one try at a time, when its backoff has passed.
  bool allows(time_point now) const;
  /// A try went out.
  void began();
  /// A try ended, and the server answered, whatever it said.
  void answered();
  /// A try ended without an answer. random: uniform in [0, 1).
  void unanswered(time_point now, double random);
  /// A try ended before it asked the server anything.
  void unasked();

  bool open() const { return failures_ > 0; }
  bool idle() const { return under_way_ == 0; }
  /// When allows() may change by itself; max() if never.
  time_point next(time_point now) const;

 private:
  Backoff backoff_;
  std::uint32_t failures_ = 0;
  std::size_t under_way_ = 0;
  time_point again_at_{};
};

}  // namespace corbd
