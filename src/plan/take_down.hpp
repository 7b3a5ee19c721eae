// The wishes Unpublished and Unstaged: a path is cleared, and after the last one everything below it.
#pragma once

#include "device.hpp"

namespace corbd::plan {

Decision unpublish(const View& view, const Unpublished& wish);
Decision unstage(const View& view, const Unstaged& wish);

}  // namespace corbd::plan
