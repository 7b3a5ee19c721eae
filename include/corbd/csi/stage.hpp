// Makes the wish of a stage that kubelet did not call.
#pragma once

#include "corbd/heal/finder.hpp"

namespace corbd::csi {

/// The wish is that of a NodeStageVolume with these arguments, with the same checks and errors. `unnamed`:
/// Config::default_mounter.
result<volume::Wish> stage_wish(const heal::StageArguments& arguments, volume::Mounter unnamed = volume::Mounter::nbd);

}  // namespace corbd::csi
