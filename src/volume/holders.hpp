// Who has an image, and how to keep them from it.
#pragma once

#include <string>
#include <vector>

#include "corbd/plan/holder.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::volume {

/// Every foreign client that `who` shows, with what the blocklist, the image's metadata and the orchestrator know of
/// it. None of them has to answer: what is not known is unknown. `volume_id`: whose attachment counts; "": none.
task<std::vector<plan::Holder>> find_holders(const Ports& ports, image::Access access, image::Image& image,
                                             image::Ownership who, std::string volume_id, Until until);

/// The kernel client of this node that shows the image is no foreign one.
void forget_own_kernel(const Ports& ports, const image::Key& key, image::Ownership& who);

/// Blocklists each of them by its very address, for as long as a dead client of our own. When it has succeeded, our
/// clients have the OSD map that says so.
task<result<>> evict(const Ports& ports, image::Access access, std::vector<plan::Holder> holders, Until until);

}  // namespace corbd::volume
