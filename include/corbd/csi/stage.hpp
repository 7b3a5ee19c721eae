// The wish of a stage that nobody called for.
#pragma once

#include "corbd/heal/finder.hpp"

namespace corbd::csi {

/// As of a NodeStageVolume with these arguments; the same checks and errors. `unnamed`: Config::default_mounter.
result<volume::Wish> stage_wish(const heal::StageArguments& arguments, volume::Mounter unnamed = volume::Mounter::nbd);

}  // namespace corbd::csi
