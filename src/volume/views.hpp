// What others see of the node's volumes and devices.
#pragma once

#include "volume_map.hpp"

namespace corbd::volume {

/// As Volumes'.
std::vector<Status> status(const VolumeMap& volumes, const Ports& ports);
std::optional<Status> status(const VolumeMap& volumes, const Ports& ports, const std::string& id);
std::vector<Unclaimed> unclaimed(const VolumeMap& volumes, const Ports& ports);
std::vector<Unclaimed> left_to_kernel(const VolumeMap& volumes, const Ports& ports);

}  // namespace corbd::volume
