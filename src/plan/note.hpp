// The part of the plan that tells ceph-csi's controller who uses a volume, by the image's metadata
// (docs/sources.md#node-to-controller).
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// The step that writes what the metadata does not say yet; nothing when it does, or for a volume that no provisioner
/// made.
std::optional<Step> note_node(const Situation& view);

/// After healing: the same, and the record knows of it.
std::optional<Step> renew_note(const Situation& view);

}  // namespace corbd::plan
