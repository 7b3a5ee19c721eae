// A program that a bench runs while it waits.
#pragma once

#include <string>
#include <vector>

#include "corbd/core/wait.hpp"

namespace corbd::bench {

/// Whether it ended well. It gets a SIGTERM when the scope is cancelled.
task<bool> run_command(executor control, Clock& clock, std::vector<std::string> words, CancelScope& leaving);

}  // namespace corbd::bench
