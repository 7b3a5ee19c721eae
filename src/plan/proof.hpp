// Whether the image is still this node's: docs/proof-of-ownership.md.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Rule 2a. A device that exists may have unwritten pages above it: serving it again needs proof that nobody else wrote
/// meanwhile. A new device has no past; it only must not take the image from someone.
std::optional<Decision> prove(const Situation& view);
/// The part of prove() for a volume without a device: takes the image from clients that can write it no more. Ownership
/// known. Nothing: no client is in the way.
std::optional<Decision> take_image(const Situation& view);
/// Rule 2b. Proven another's: the requests that wait get their EIO after a while, so that pods can end and unmounts
/// return.
Decision lost(const Situation& view, const std::string& why);
/// Why the orchestrator knows that the volume may be another node's; null: it knows of nothing. Attachment known.
const char* taken_away(const Situation& view);
/// The lock shows what an earlier try did on an operator override without serving the device. This try has neither that
/// override nor a VolumeAttachment.
bool rests_on_override(const Situation& view);

}  // namespace corbd::plan
