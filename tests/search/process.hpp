// Resets what an agent knows: after an operation, with a closed image, after a stale look.
#pragma once

#include "state.hpp"

namespace corbd::search {

void end_operation(Process& agent);
/// Ends an agent's operation with an error. A volume without a device keeps no image open
/// (OperationRunner::leave_without_device).
void fail_operation(World& world, int node);
void forget_image(Process& agent);
void forget_owner(Process& agent);
void forget_attachment(Process& agent);
/// Whether the client is the living predecessor's, and so not the agent's to fence.
bool yields(const Node& node, Ref client);

}  // namespace corbd::search
