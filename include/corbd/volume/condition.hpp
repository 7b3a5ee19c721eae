// What is wrong with a volume, for those who watch it from outside: from what the agent knows, without asking anybody.
#pragma once

#include <string>

#include "corbd/volume/status.hpp"

namespace corbd::volume {

struct Condition {
  enum class Kind {
    healthy,
    degraded,      ///< it works in part, or comes back by itself
    inaccessible,  ///< its I/O waits or fails
  } kind = Kind::healthy;
  std::string reason;   ///< one word for programs, "ClusterUnreachable"; empty while healthy
  std::string message;  ///< a sentence for people
};

Condition condition_of(const Status& status);

}  // namespace corbd::volume
