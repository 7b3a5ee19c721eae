// Makes the wish of a stage that kubelet did not call.
#pragma once

#include "corbd/orchestrator/finder.hpp"

namespace corbd::csi {

/// The wish is that of a NodeStageVolume with these arguments, with the same checks and errors. The volume has an nbd
/// device already, so nbd is its client, whatever its attributes say.
result<plan::Wish> stage_wish(const orchestrator::StageArguments& arguments);

}  // namespace corbd::csi
