// Facts about other volumes of this node that a volume depends on.
#pragma once

#include "volume_map.hpp"

namespace corbd::volume {

/// Adds to the observation of `volume`: the other volumes on its image, those that need its silent client, and
/// the one that owns the wish's path.
void observe_neighbours(Observation& seen, const Volume& volume, const Wish& wish, const VolumeMap& volumes,
                        const Ports& ports);

/// Whether the client serves a volume that gets answers, and that has no other user and key.
bool is_client_needed(const std::string& client, const VolumeMap& volumes);

/// Returns the numbers of other volumes' devices of this kind, from records and from paths that show a raw device.
std::vector<std::uint32_t> numbers_of_others(const Volume& volume, const VolumeMap& volumes, const Ports& ports,
                                             const std::string& boot_id);

}  // namespace corbd::volume
