// Pure functions from the agent's values to a CSI response.
#pragma once

#include "corbd/csi/server.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/condition.hpp"
#include "corbd/volume/volumes.hpp"
#include "csi/v1/csi.pb.h"

namespace corbd::csi {

/// Fills in only the size for a raw block volume: only the cluster knows how much is used.
void fill(::csi::v1::NodeGetVolumeStatsResponse& into, const host::Usage& usage, const volume::Status& status);
void fill(::csi::v1::NodeGetVolumeHealthResponse& into, const volume::Status& status);
void fill(::csi::v1::NodeGetStorageHealthResponse& into, const std::vector<BackendCondition>& conditions);

}  // namespace corbd::csi
