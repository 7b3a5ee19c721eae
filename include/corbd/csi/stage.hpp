// Makes what kubelet would pass to a stage, without its call.
#pragma once

#include "corbd/orchestrator/finder.hpp"

namespace corbd::csi {

/// The wish is that of a NodeStageVolume with these arguments, with the same checks and errors. The volume has an nbd
/// device already, so nbd is its client, whatever its attributes say.
result<plan::Wish> stage_wish(const orchestrator::StageArguments& arguments);
/// The user and key that a stage with these secrets would have.
result<plan::Credential> stage_credential(const std::map<std::string, Secret>& secrets);

}  // namespace corbd::csi
