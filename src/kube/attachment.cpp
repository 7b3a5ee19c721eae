#include "corbd/kube/attachment.hpp"

namespace corbd::kube {
namespace {

/// Assumed bound of the difference between clocks that could not be compared.
constexpr std::chrono::minutes kClocksDiffer{5};
constexpr const char* kAway =
    ": since then it was detached from this node, and another node may have written it. End its pods on this node, so "
    "that it is unstaged";

Error refuse(std::string why) { return {errc::failed_precondition, std::move(why)}; }

}  // namespace

result<bool> has_attachments(const answer<boost::json::object>& driver) {
  if (driver) return attaches(*driver);
  if (driver.error().error.code == errc::not_found) return true;
  return driver.error().error;
}

result<> check_attached(const VolumeAttachment& attachment, const std::string& driver, const std::string& node) {
  if (attachment.attacher != driver || attachment.node != node)
    return Error{errc::not_found,
                 "its VolumeAttachment is for driver " + attachment.attacher + " and node " + attachment.node};
  const auto not_now = [](const char* why) { return Error{errc::unavailable, why}; };
  if (attachment.uid.empty()) return not_now("its VolumeAttachment has no UID");
  if (attachment.deleting) return not_now("its VolumeAttachment is being deleted");
  if (!attachment.attached) return not_now("its VolumeAttachment is not attached");
  return {};
}

result<> check_bound(const PersistentVolume& volume, const std::string& driver, const std::string& handle) {
  const std::string name = "PersistentVolume " + volume.name;
  if (volume.driver.empty()) return refuse(name + " is not a CSI volume");
  if (volume.driver != driver) return refuse(name + " belongs to driver " + volume.driver);
  if (volume.handle != handle) return refuse(name + " belongs to volume " + volume.handle);
  if (!volume.bound) return refuse(name + " is not bound");
  if (!volume.mode.empty() && volume.mode != "Filesystem" && volume.mode != "Block")
    return refuse(name + " has the unknown volumeMode " + volume.mode);
  if (volume.access_modes.empty()) return refuse(name + " has no access mode");
  if (!volume.node_stage_secret) return refuse(name + " names no nodeStageSecretRef");
  return {};
}

result<> check_stayed(const StageTraces& traces, const VolumeAttachment& attachment,
                      std::optional<std::chrono::milliseconds> ahead) {
  if (!traces.staged) return refuse("there is no image-meta.json at its staging path");
  if (!traces.attachment.empty()) {
    if (traces.attachment == attachment.uid) return {};
    return refuse("it was staged under another VolumeAttachment (UID " + traces.attachment + ", now " + attachment.uid +
                  ")" + kAway);
  }
  if (!attachment.created) return refuse("its VolumeAttachment has no creationTimestamp");
  // Compare in the server's time. If both happened within one second, the server's next answer shows which came first.
  const auto staged = *traces.staged + ahead.value_or(std::chrono::milliseconds(0));
  if (staged < *attachment.created) return refuse(std::string("it was staged before it was attached") + kAway);
  if (!ahead && staged - kClocksDiffer < *attachment.created)
    return refuse("its image-meta.json is less than " + std::to_string(kClocksDiffer.count()) +
                  " minutes younger than its VolumeAttachment, and the API server's answers have no Date to compare "
                  "the clocks by. So it may have been staged before it was attached: restart kubelet, which stages it "
                  "again, or end its pods on this node");
  return {};
}

}  // namespace corbd::kube
