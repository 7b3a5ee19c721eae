// Pure functions from a CSI request to a wish. Nothing here looks at the node.
#pragma once

#include "corbd/cephcsi/parameters.hpp"
#include "corbd/plan/wish.hpp"
#include "csi/v1/csi.pb.h"

namespace corbd::csi {

result<plan::Wish> wish_of(const ::csi::v1::NodeStageVolumeRequest& request, const cephcsi::Mounters& mounters = {});
result<plan::Wish> wish_of(const ::csi::v1::NodeUnstageVolumeRequest& request);
result<plan::Wish> wish_of(const ::csi::v1::NodePublishVolumeRequest& request, const cephcsi::Mounters& mounters = {});
result<plan::Wish> wish_of(const ::csi::v1::NodeUnpublishVolumeRequest& request);
result<plan::Wish> wish_of(const ::csi::v1::NodeExpandVolumeRequest& request);

/// gRPC keeps a request until its call has ended. That may be long after the wish took over its secrets.
template <class Request>
void wipe_secrets(const Request& request) {
  // gRPC did not make it as a const object.
  for (auto& [name, secret] : *const_cast<Request&>(request).mutable_secrets()) wipe(secret);
}

/// For NodeReclaimSpace. The sidecar sends only the staging path.
result<plan::Wish> trim_wish(const std::string& volume_id, const std::string& staging_path,
                             const std::string& volume_path);

/// For requests without a wish.
result<> check_volume_id(const std::string& id);
result<> check(const ::csi::v1::NodeGetVolumeStatsRequest& request);
result<> check(const ::csi::v1::NodeGetVolumeHealthRequest& request);

}  // namespace corbd::csi
