// The wish Published.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

Decision publish(const Situation& view, const Published& wish);

}  // namespace corbd::plan
