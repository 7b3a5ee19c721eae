// Decides whether a volume is on this node, and has been since it was staged, from a VolumeAttachment, a
// PersistentVolume and the traces of an earlier stage. The agent serves by it, and the doctor predicts the agent by it.
// Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "corbd/core/result.hpp"
#include "corbd/kube/objects.hpp"

namespace corbd::kube {

/// Whether a driver's volumes are attached at all. Only a CSIDriver that says otherwise makes it false. An error: it
/// could not be read.
result<bool> has_attachments(const answer<boost::json::object>& driver);

/// Checks the VolumeAttachment that has the volume's computed name. not_found: the volume is not on this node;
/// unavailable: it is not, or not any more, and that may change.
result<> check_attached(const VolumeAttachment& attachment, const std::string& driver, const std::string& node);

/// Checks that the PersistentVolume is bound and has this driver and handle. failed_precondition says what differs.
result<> check_bound(const PersistentVolume& volume, const std::string& driver, const std::string& handle);

/// Traces of an earlier stage at a staging path.
struct StageTraces {
  std::optional<std::chrono::system_clock::time_point> staged;  ///< time when image-meta.json was written
  std::string attachment = {};  ///< UID of the VolumeAttachment, from image-meta.json; empty: it has none
};

/// Refuses a volume that was staged before its present attachment, because another node may have written it in between.
/// The attachment's UID in the stash decides. Without one (ceph-csi staged it), the times of this node and of the API
/// server are compared. `ahead`: by how much the server's clock was ahead of this node's; it may be a little more.
result<> check_stayed(const StageTraces& traces, const VolumeAttachment& attachment,
                      std::optional<std::chrono::milliseconds> ahead);

}  // namespace corbd::kube
