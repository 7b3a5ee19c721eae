// The part of the plan for a volume in use: larger, and without what its filesystem does not need any more.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

Decision expand(const Situation& view, const Expanded& wish);
/// The next step towards a mapping and a filesystem as large as their device, of a volume that is staged;
/// failed_precondition when they cannot grow.
Decision expand_contents(const Situation& view);
Decision trim(const Situation& view, const Trimmed& wish);

}  // namespace corbd::plan
