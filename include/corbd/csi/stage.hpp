// The wish of a stage that nobody called for.
#pragma once

#include "corbd/heal/finder.hpp"

namespace corbd::csi {

/// As of a NodeStageVolume with these arguments; the same checks and errors.
result<volume::Wish> stage_wish(const heal::StageArguments& arguments);

}  // namespace corbd::csi
