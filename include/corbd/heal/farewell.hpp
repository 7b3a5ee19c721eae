// Leaving while the node shuts down (rule 20): what uses our devices must end first.
#pragma once

#include "corbd/core/wait.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::heal {

/// Returns when nobody uses a device of ours. After `grace` those still used are given up: they answer EIO, so that
/// unmounts end; then it returns when they are unused, or 10 s later. Says in the log for what it waits. A cancelled
/// scope ends it at once.
task<> outlast_users(executor control, Clock& clock, volume::Volumes& volumes, std::chrono::seconds grace,
                     CancelScope& hurry);

}  // namespace corbd::heal
