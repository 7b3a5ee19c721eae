// Freezing a filesystem for a snapshot, and thawing it, also one that an earlier agent froze.
#pragma once

#include <string>

#include "situation.hpp"

namespace corbd::plan {

Decision freeze(const Situation& view, const Frozen& wish);
Decision thaw(const Situation& view);
/// Thaws a frozen filesystem before a step that would wait for the thaw. Nothing: it is not frozen, or cannot be thawed
/// now, because its device has no server.
std::optional<Decision> thaw_if_served(const Situation& view);
/// Refuses what can wait for the thaw. Nothing: it is not frozen, or cannot be thawed now.
std::optional<Decision> refuse_frozen(const Situation& view);
/// Thaws it before its last unmount, after which nobody could.
std::optional<Decision> thaw_before_end(const Situation& view);

}  // namespace corbd::plan
