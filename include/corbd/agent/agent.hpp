// The agent of a node: all rooms together.
#pragma once

#include "corbd/agent/options.hpp"
#include "corbd/core/fd.hpp"

namespace corbd::agent {

/// Looks whether an agent may begin here, and runs it. The exit code of one that may not; otherwise it does not return.
/// `keeper`: the socket of the one that started this process.
int start(const Options& options, Fd keeper);

}  // namespace corbd::agent
