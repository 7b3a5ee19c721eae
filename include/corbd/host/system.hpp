// What the machine as a whole is about to do.
#pragma once

#include <chrono>

#include "corbd/core/result.hpp"

namespace corbd::host {

/// Whether the system is going down: systemd's SystemState is "stopping", or logind holds a shutdown back for those who
/// asked (PreparingForShutdown). Over D-Bus; blocks for `patience` at most. unavailable without a system bus: then
/// nobody knows.
result<bool> system_stopping(std::chrono::milliseconds patience);

}  // namespace corbd::host
