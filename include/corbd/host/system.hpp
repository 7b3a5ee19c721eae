// What the machine as a whole is about to do.
#pragma once

#include <chrono>

#include "corbd/core/result.hpp"

namespace corbd::host {

/// Whether the system is going down: systemd's SystemState is "stopping", or logind delays a shutdown for programs that
/// asked for it (PreparingForShutdown). It asks over D-Bus and blocks for `patience` at most. Without a system bus it
/// returns unavailable.
result<bool> system_stopping(std::chrono::milliseconds patience);

}  // namespace corbd::host
