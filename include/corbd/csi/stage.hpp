// Makes the wish of a stage that kubelet did not call.
#pragma once

#include "corbd/heal/finder.hpp"

namespace corbd::csi {

/// The wish is that of a NodeStageVolume with these arguments, with the same checks and errors. `unnamed`:
/// Config::default_mounter.
result<plan::Wish> stage_wish(const heal::StageArguments& arguments, cephcsi::Mounter unnamed = cephcsi::Mounter::nbd);

}  // namespace corbd::csi
