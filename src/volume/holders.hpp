// Finds the clients that have an image, and keeps them from it.
#pragma once

#include <string>
#include <vector>

#include "corbd/plan/holder.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::volume {

/// Returns every foreign client that `who` shows, with its facts in the blocklist, the image's metadata and the
/// orchestrator. None of these has to answer: a missing fact is unknown. `volume_id`: the volume whose attachment
/// counts; "": none.
task<std::vector<plan::Holder>> find_holders(const Ports& ports, image::Access access, image::Image& image,
                                             image::Ownership who, std::string volume_id, Until until);

/// Removes the kernel client of this node that shows the image: it is no foreign one.
void forget_own_kernel(const Ports& ports, const image::Key& key, image::Ownership& who);

/// Blocklists each of them by its very address, for as long as a dead client of our own. After success our clients have
/// the OSD map that says so.
task<result<>> evict(const Ports& ports, image::Access access, std::vector<plan::Holder> holders, Until until);

}  // namespace corbd::volume
