// Whether the agent lives (/healthz) and can serve (/readyz). A dead control thread answers neither, because the server
// runs on it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/http/server.hpp"

namespace corbd::ops {

/// From this lag on /healthz answers 503.
inline constexpr std::chrono::seconds kTooLate{10};

/// How late the control thread is. A tick each second measures its own delay. stop() before it is destroyed.
class LoopLag {
 public:
  explicit LoopLag(Clock& clock) : clock_(clock) {}
  ~LoopLag() { stop(); }
  void start();
  void stop();
  /// The delay of the last tick, or of the tick that is due.
  duration now() const;
  /// The worst delay of the last minute, so that no scrape misses it.
  duration worst() const;

 private:
  void tick();
  Clock& clock_;
  Clock::TimerId timer_ = 0;
  time_point due_ = time_point::max();
  std::array<duration, 60> last_{};
  std::size_t at_ = 0;
};

/// Whether a folder can be written. It tries again and again on the blocking pool, because a disk that hangs must not
/// hang the control thread.
class Writable {
 public:
  Writable(executor control, Clock& clock, BlockingPool& pool, std::string folder);
  void start();
  /// Leaves a write that hangs behind.
  task<> stop();
  const result<>& state() const { return state_; }

 private:
  static task<> watch(Writable& self);
  executor control_;
  Clock& clock_;
  BlockingPool& pool_;
  const std::string folder_;
  Gate gate_;
  CancelScope stopping_;
  result<> state_;
};

/// 200 while the lag is below kTooLate, 503 otherwise.
http::Response healthz(duration lag);
/// 200 without reasons, otherwise 503 with one line per reason.
http::Response readyz(const std::vector<Error>& reasons);

}  // namespace corbd::ops
