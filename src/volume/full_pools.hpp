// Finds the pools that take no more writes, before a device is given away.
#pragma once

#include <map>
#include <string>

#include "volume_map.hpp"

namespace corbd::volume {

/// Implements Shell::in_full_pools().
task<std::map<std::string, std::string>> in_full_pools(const Ports& ports, Clock& clock, const VolumeMap& volumes,
                                                       Until until);

}  // namespace corbd::volume
