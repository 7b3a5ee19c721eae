// The part of the plan for a volume in use: growth, and giving back unused space of its filesystem.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

Decision expand(const Situation& view, const Expanded& wish);
/// Returns the next step towards a mapping and a filesystem as large as their device, for a staged volume;
/// failed_precondition if they cannot grow.
Decision expand_contents(const Situation& view);
Decision trim(const Situation& view, const Trimmed& wish);

}  // namespace corbd::plan
