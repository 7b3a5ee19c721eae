// Public entry of the room `agent`, which joins all other rooms into the agent of a node.
#pragma once

#include "corbd/agent/options.hpp"
#include "corbd/core/fd.hpp"

namespace corbd::agent {

/// Checks whether an agent may begin here, and runs it. Returns the exit code of one that may not; otherwise it does
/// not return. `keeper`: the socket of the process that started this one.
int start(const Options& options, Fd keeper);

}  // namespace corbd::agent
