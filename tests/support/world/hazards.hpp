// What the world does to calls of the agent's ports beyond its rules.
#pragma once

#include <optional>
#include <string>

#include "support/loop.hpp"

namespace corbd::test {

/// What the world does to one call of a port.
struct Fate {
  duration before = std::chrono::milliseconds(1);  ///< until it takes effect
  duration after{};                                ///< until the caller hears of it
  bool crash_before = false, crash_after = false;
  std::optional<Error> fail, fail_after;  ///< without and with its effect
};

/// How the world behaves beyond its rules. Nothing is set: at once and well.
struct Hazards {
  virtual ~Hazards() = default;
  virtual Fate fate(const std::string& call) = 0;
  /// Between the end of a link and the moment in which the kernel sees it.
  virtual duration until_seen_dead() = 0;
  /// Until the agent is told of it; nothing: never.
  virtual std::optional<duration> until_told_dead() = 0;
  /// Below `limit`, any.
  virtual duration any(duration limit) = 0;
  virtual void trace(const std::string& event) = 0;
};

}  // namespace corbd::test
