// The part of the plan between a device that answers and a mounted filesystem: rule 10, a format only on proof of emptiness.
#pragma once

#include "plan_device.hpp"

namespace corbd::volume {

Decision make_filesystem(const View& view, const std::string& target, const Capability& capability);

}  // namespace corbd::volume
