// The part of the plan that writes ceph-csi's stash beside a staged volume, so that ceph-csi can follow this agent
// (docs/sources.md#stash).
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Returns the next step towards a stash that describes the staging at the wish's path; nothing if it does. Needs a
/// record. As in ceph-csi, the stash exists before the device does, and names the device as soon as that exists.
std::optional<Decision> keep_stash(const Situation& view, const Staged& wish);

/// Returns the step that puts the record's VolumeAttachment into the stash of the staging, whoever wrote that; nothing
/// if it has it, or there is no such stash. The record has it first: without the UID in the stash its time counts,
/// without the record's the volume is unproven.
std::optional<Decision> sign_stash(const Situation& view);

/// Returns the step that writes into the stash whether a cache was lost (`lost`); nothing if the stash has that
/// already, or is missing or another device's. The stash keeps the loss if somebody removes the record.
std::optional<Decision> note_loss_in_stash(const Situation& view, bool lost);

/// Ends an unstage: removes the stash, then follows `then`.
Decision without_stash(const Situation& view, const Unstaged& wish, Decision then);

}  // namespace corbd::plan
