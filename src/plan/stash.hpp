// The part of the plan that leaves ceph-csi's stash beside a staged volume, so that ceph-csi can follow this agent
// (docs/sources.md#stash).
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// The next step towards a stash that tells what is staged at the wish's path; nothing when it does. Needs a record. As
/// ceph-csi has it: there before the device is, and telling of the device as soon as that is there.
std::optional<Decision> keep_stash(const Situation& view, const Staged& wish);

/// The step that puts the record's VolumeAttachment into the stash of what is staged, whoever wrote that; nothing when
/// it is there, or there is no such stash. The record has it first: without a stash's word its time is taken, without
/// the record's the volume is unproven.
std::optional<Decision> sign_stash(const Situation& view);

/// The last of an unstage: the stash goes, then follows `then`.
Decision without_stash(const Situation& view, const Unstaged& wish, Decision then);

}  // namespace corbd::plan
