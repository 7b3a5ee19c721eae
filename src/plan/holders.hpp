// Decides for a volume that is to get its first device here while other clients have its image.
#pragma once

#include "corbd/plan/holder.hpp"
#include "situation.hpp"

namespace corbd::plan {

/// Returns nothing if nobody else has the image, or can write it any more. Otherwise asks who that is, takes the image
/// from clients that are proven dead, and reports the others. Ownership known.
std::optional<Decision> take_from_holders(const Situation& view);
/// Handles an image that many nodes write: a dead client may have left its lock. librbd and the kernel would break it,
/// and cut that client off for an hour only. Ownership known.
std::optional<Decision> take_left_lock(const Situation& view);
/// Handles an image that one node is to read, which nobody may write meanwhile. A client that only reads has no watch.
/// Ownership known.
std::optional<Decision> wait_for_writers(const Situation& view);

}  // namespace corbd::plan
