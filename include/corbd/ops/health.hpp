// Facts of the node's health that need constant checks, and the two pages that show it: whether the agent lives
// (/healthz), and whether it can serve (/readyz). A dead control thread answers neither, because the server runs on it.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/http/server.hpp"
#include "corbd/ops/node_health.hpp"

namespace corbd::ops {

/// Measures how late the control thread is. A tick each second measures its own delay. stop() before it is destroyed.
class LoopLag {
 public:
  explicit LoopLag(Clock& clock) : clock_(clock) {}
  ~LoopLag() { stop(); }
  void start();
  void stop();
  /// Returns the delay of the last tick, or of the tick that is due.
  duration now() const;
  /// Returns the worst delay of the last minute, so that no scrape misses it.
  duration worst() const;

 private:
  void tick();
  Clock& clock_;
  Clock::TimerId timer_ = 0;
  time_point due_ = time_point::max();
  std::array<duration, 60> last_{};
  std::size_t at_ = 0;
};

/// Finds out whether a folder can be written. It tries repeatedly on the blocking pool, because a disk that hangs must
/// not hang the control thread.
class Writable {
 public:
  Writable(executor control, Clock& clock, BlockingPool& pool, std::string folder);
  void start();
  /// Abandons a write that hangs.
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

/// Asks an outsider repeatedly. A change of the answer is logged.
class Watched {
 public:
  using Ask = std::function<task<result<>>(Until)>;
  /// `what`: its name in the log. `not_missed`: why its silence does not matter here; such silence is not logged.
  Watched(executor control, Clock& clock, std::string what, std::chrono::seconds every, Ask ask,
          std::optional<std::string> not_missed = std::nullopt);
  void start();
  task<> stop();
  const Outsider& now() const { return now_; }

 private:
  static task<> watch(Watched& self);
  Outsider judged(const result<>& answer) const;
  void heard(const result<>& answer);
  executor control_;
  Clock& clock_;
  const std::string what_;
  const std::chrono::seconds every_;
  const Ask ask_;
  const std::optional<std::string> not_missed_;
  Gate gate_;
  CancelScope stopping_;
  Outsider now_;
};

/// Returns 200, or 503 with one line for each component that keeps the agent from living, or from serving.
http::Response healthz(const NodeHealth& health);
http::Response readyz(const NodeHealth& health);

}  // namespace corbd::ops
