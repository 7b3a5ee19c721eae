// The part of the plan that tells ceph-csi's controller who uses a volume, by the image's metadata
// (docs/sources.md#node-to-controller).
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Returns the step that writes what the metadata lacks; nothing if it is complete, or for a volume that no provisioner
/// made.
std::optional<Step> note_node(const Situation& view);

/// Does the same after healing, and for the record too.
std::optional<Step> renew_note(const Situation& view);

}  // namespace corbd::plan
