// The wishes Unpublished and Unstaged: a path is cleared, and after the last one everything below it.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

Decision unpublish(const Situation& view, const Unpublished& wish);
Decision unstage(const Situation& view, const Unstaged& wish);

}  // namespace corbd::plan
