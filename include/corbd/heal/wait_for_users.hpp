// Shutdown of the node (rule 20): the users of our devices must end before the agent.
#pragma once

#include <string>
#include <vector>

#include "corbd/core/wait.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::heal {

/// Returns the volumes whose devices this agent serves and somebody uses.
std::vector<std::string> served_in_use(const volume::Volumes& volumes);

/// Returns when nobody uses a device of ours. After `grace`, volumes still in use are given up: they answer EIO, so
/// that unmounts end. It then returns when they are unused, or after 10 s. The log says what it waits for. Cancelling
/// `hurry` ends it at once.
task<> wait_for_users(executor control, Clock& clock, volume::Volumes& volumes, std::chrono::seconds grace,
                      CancelScope& hurry);

}  // namespace corbd::heal
