// Named places where a test can stop, fail or kill the agent. They are off unless `corbd run --failpoint NAME=ACTION`
// asks. The names are a closed list, so that a test cannot wait for a point that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"

namespace corbd::failpoint {

/// Names of a room's failpoints. The room makes this object at namespace scope, before main().
class Places {
 public:
  explicit Places(std::vector<std::string> names);
};

/// Returns all names, sorted.
std::vector<std::string> names();

/// ACTION: `off`, `kill` (SIGKILL to ourselves), `stop` (SIGSTOP to ourselves, until a SIGCONT), `error` (hit() returns
/// unavailable), `hang` (stop this thread for ever). Optional `@N`: at the Nth hit. An unknown name or action is
/// invalid_argument.
result<> arm(std::string_view spec);

/// Marks a named place in the code. It costs one relaxed load when nothing is armed. Any thread.
result<> hit(std::string_view name);

}  // namespace corbd::failpoint
