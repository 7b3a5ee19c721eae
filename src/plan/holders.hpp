// A volume that is to get its first device here, while other clients have its image.
#pragma once

#include "corbd/plan/holder.hpp"
#include "situation.hpp"

namespace corbd::plan {

/// Nothing when nobody else has the image, or can write it any more. Otherwise it asks who that is, takes the image
/// from clients that are proven dead, and says who has it. Ownership known.
std::optional<Decision> take_from_holders(const Situation& view);

}  // namespace corbd::plan
