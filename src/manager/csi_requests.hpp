// Converts our values into CSI's messages, and CSI's answers into ours.
#pragma once

#include <grpcpp/support/status.h>

#include "corbd/manager/values.hpp"
#include "csi/v1/csi.pb.h"

namespace corbd::manager {

::csi::v1::NodeStageVolumeRequest stage_request(const Mount& mount, const std::string& staging);
::csi::v1::NodePublishVolumeRequest publish_request(const Mount& mount, const std::string& staging);

::csi::v1::NodeExpandVolumeRequest expand_request(const Claim& claim, const std::string& staging);

/// The text has no control characters, and names the code if the plugin gave no text.
Error error_of(const grpc::Status& status);

}  // namespace corbd::manager
