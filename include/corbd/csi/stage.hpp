// Makes the values of a stage without kubelet's call.
#pragma once

#include "corbd/orchestrator/finder.hpp"

namespace corbd::csi {

/// Returns the wish of a NodeStageVolume with these arguments, with the same checks and errors. The volume has an nbd
/// device already, so nbd is its client, whatever its attributes say.
result<plan::Wish> stage_wish(const orchestrator::StageArguments& arguments);
/// Returns the user and key of a stage with these secrets.
result<plan::Credential> stage_credential(const std::map<std::string, Secret>& secrets);

}  // namespace corbd::csi
