// What a volume must know of the others on this node.
#pragma once

#include "volume_map.hpp"

namespace corbd::volume {

/// Adds to what was seen of `volume`: the other volumes on its image, and the one that owns the wish's path.
void observe_neighbours(Observation& seen, const Volume& volume, const Wish& wish, const VolumeMap& volumes,
                        const Ports& ports);

/// The numbers of other volumes' devices of this kind: records have them, and paths that show a raw device.
std::vector<std::uint32_t> numbers_of_others(const Volume& volume, const VolumeMap& volumes, const Ports& ports,
                                             const std::string& boot_id);

}  // namespace corbd::volume
