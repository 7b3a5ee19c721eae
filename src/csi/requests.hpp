// From a CSI request to a wish: pure functions. Nothing here looks at the node.
#pragma once

#include "corbd/volume/wish.hpp"
#include "csi/v1/csi.pb.h"

namespace corbd::csi {

result<volume::Wish> wish_of(const ::csi::v1::NodeStageVolumeRequest& request);
result<volume::Wish> wish_of(const ::csi::v1::NodeUnstageVolumeRequest& request);
result<volume::Wish> wish_of(const ::csi::v1::NodePublishVolumeRequest& request);
result<volume::Wish> wish_of(const ::csi::v1::NodeUnpublishVolumeRequest& request);
result<volume::Wish> wish_of(const ::csi::v1::NodeExpandVolumeRequest& request);

/// For those that ask for no wish.
result<> check(const ::csi::v1::NodeGetVolumeStatsRequest& request);
result<> check(const ::csi::v1::NodeGetVolumeHealthRequest& request);

}  // namespace corbd::csi
