// From what the agent knows to a CSI response: pure functions.
#pragma once

#include "corbd/volume/condition.hpp"
#include "corbd/volume/wish.hpp"
#include "csi/v1/csi.pb.h"

namespace corbd::csi {

/// Of a raw block volume only the size: what is used of it only the cluster knows.
void fill(::csi::v1::NodeGetVolumeStatsResponse& into, const host::Usage& usage, const volume::Status& status);
void fill(::csi::v1::NodeGetVolumeHealthResponse& into, const volume::Status& status);

}  // namespace corbd::csi
