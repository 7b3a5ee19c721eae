// Decides whether the image is still this node's: docs/proof-of-ownership.md.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Implements rule 2a. A device that exists may have unwritten pages above it: serving it again needs proof that nobody
/// else wrote meanwhile. A new device has no past; it only must not take the image from a client that uses it.
std::optional<Decision> prove(const Situation& view);
/// The part of prove() for a volume without a device: takes the image from clients that can no longer write it.
/// Ownership known. Nothing: no client is in the way.
std::optional<Decision> take_image(const Situation& view);
/// Implements rule 2b for a volume that is proven another's: waiting requests get EIO after a while, so that pods can
/// end and unmounts return.
Decision lost(const Situation& view, const std::string& why);
/// Returns why, by the orchestrator, the volume may be another node's; null: it knows no reason. Attachment known.
const char* taken_away(const Situation& view);
/// Whether the proof of the image may be older than the lock by more than another node needs to have it in between.
/// Then only what is asked with the lock in hand proves anything.
bool is_lock_late(const Situation& view);
/// Whether the lock shows what an earlier try did on an operator override without serving the device. This try has
/// neither that override nor a VolumeAttachment.
bool rests_on_override(const Situation& view);

}  // namespace corbd::plan
