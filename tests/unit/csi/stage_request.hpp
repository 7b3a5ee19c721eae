// Complete requests of kubelet. The tests remove parts or change them.
#pragma once

#include <string>

#include "requests.hpp"

namespace corbd::test {

namespace v1 = ::csi::v1;
using Mode = v1::VolumeCapability::AccessMode;

inline v1::NodeStageVolumeRequest stage_request() {
  v1::NodeStageVolumeRequest request;
  request.set_volume_id("image-1");
  request.set_staging_target_path("/var/lib/kubelet/plugins/x/globalmount");
  request.mutable_volume_capability()->mutable_mount()->set_fs_type("ext4");
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(Mode::SINGLE_NODE_MULTI_WRITER);
  auto& attributes = *request.mutable_volume_context();
  attributes["staticVolume"] = "true";
  attributes["clusterID"] = "lab";
  attributes["pool"] = "pool";
  (*request.mutable_secrets())["userID"] = "node";
  (*request.mutable_secrets())["userKey"] = "AQCanary==";
  return request;
}

inline const std::string kUuid = "50d53503-9da1-11ed-847e-bacf8f2f1297";

inline v1::NodeStageVolumeRequest dynamic_request() {
  auto request = stage_request();
  request.set_volume_id("0001-0009-rook-ceph-0000000000000002-" + kUuid);
  request.clear_volume_context();
  return request;
}

inline errc code_of(const v1::NodeStageVolumeRequest& request) {
  const auto wish = corbd::csi::wish_of(request);
  return wish ? errc::ok : wish.error().code;
}

}  // namespace corbd::test
