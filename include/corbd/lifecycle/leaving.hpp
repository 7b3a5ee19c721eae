// Decides when an agent leaves after SIGTERM or SIGINT.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "corbd/core/time.hpp"

namespace corbd::lifecycle {

/// Time that an agent without a device in use waits for the pod in reserve that it has called.
inline constexpr std::chrono::seconds kCalledAsksWithin{2};

/// Facts that an agent has learnt since it was told to end.
struct Told {
  int signals = 1;
  std::optional<bool> node_stops = {};  ///< nothing: not known yet. false: the node stays, or nobody answers
  bool next_asks = false;               ///< a next agent asks for this agent's devices
  bool called = false;                  ///< a pod in reserve was called to ask for them
  std::size_t in_use = 0;               ///< number of devices that it serves and somebody uses
  duration since{};                     ///< time since the first signal
  duration grace{};  ///< time that it waits for the next agent; 0: none would come while this one serves
};

enum class Decision {
  wait,  ///< serve on, and decide again soon
  hand_over,
  wait_for_users,  ///< the node shuts down: serve until nobody uses a device (rule 20)
  leave
};

/// With devices in use the agent serves until the next agent asks, within its grace. A second signal ends that.
Decision decide(const Told& told);

}  // namespace corbd::lifecycle
