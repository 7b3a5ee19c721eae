// The condition of a volume, for CSI callers and metrics. It uses only what the agent knows, and asks nobody.
#pragma once

#include <chrono>
#include <string>

#include "corbd/volume/status.hpp"

namespace corbd::volume {

/// A volume whose request has had no answer for as long has a cluster that does not answer.
inline constexpr std::chrono::seconds kUnreachableAfter{30};

struct Condition {
  enum class Kind {
    healthy,
    degraded,      ///< it works in part, or recovers by itself
    inaccessible,  ///< its I/O waits or fails
  } kind = Kind::healthy;
  std::string reason;   ///< one word for programs, "ClusterUnreachable"; empty while healthy
  std::string message;  ///< a sentence for people
};

Condition condition_of(const Status& status);

/// Explains a status with `cache_lost`, with the ways out.
std::string text_of_lost_cache(const std::string& volume_id);
/// Explains the cost of a status with `kernel_refused`, with the way out.
std::string text_of_refused_kernel(const Status& status);
/// Explains the cost of a status with `shrunk_to`, with the way out.
std::string text_of_shrunk(const Status& status);

}  // namespace corbd::volume
