// Ports of this node's devices. What else a kind of device needs of the agent is in its traits (device/values.hpp).
#pragma once

#include <map>
#include <memory>

#include "agent.hpp"
#include "corbd/device/device.hpp"

namespace corbd::agent {

/// Makes one for each kind that this agent serves. The keeper outlives them.
std::map<device::Kind, std::unique_ptr<device::Devices>> make_devices(executor control, Clock& clock,
                                                                      const Options& options, keeper::Client* keeper,
                                                                      keeper::StoredFds stored);

}  // namespace corbd::agent
