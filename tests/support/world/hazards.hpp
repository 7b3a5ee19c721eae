// The world's interference with calls of the agent's ports, beyond its rules.
#pragma once

#include <optional>
#include <string>

#include "support/loop.hpp"

namespace corbd::test {

/// The world's interference with one call of a port.
struct Fate {
  duration before = std::chrono::milliseconds(1);  ///< until it takes effect
  duration after{};                                ///< until the caller learns its end
  bool crash_before = false, crash_after = false;
  std::optional<Error> fail, fail_after;  ///< without and with its effect
};

/// The world's behaviour beyond its rules. Without hazards every call succeeds at once.
struct Hazards {
  virtual ~Hazards() = default;
  virtual Fate fate(const std::string& call) = 0;
  /// Returns the time between the end of a link and its notice by the kernel.
  virtual duration until_seen_dead() = 0;
  /// Returns the time until the agent is told of it; nothing: never.
  virtual std::optional<duration> until_told_dead() = 0;
  /// Returns any duration below `limit`.
  virtual duration any(duration limit) = 0;
  virtual void trace(const std::string& event) = 0;
};

}  // namespace corbd::test
