// The threads of a writer, until it is told to end.
#pragma once

#include <atomic>
#include <functional>

#include "options.hpp"

namespace corbd::writer {

/// SIGTERM or SIGINT came, or the time is up.
extern std::atomic<bool> stopping;

/// Runs `work` on `count` threads, which end by themselves once `stopping` is set: by a signal, or after the options'
/// seconds. Returns how many still wait for an operation a minute later. They are left behind, so that an operation
/// that never returns does not hang a test: end the process by _exit().
unsigned run_threads(const Options& options, unsigned count, const std::function<void(unsigned)>& work);

}  // namespace corbd::writer
