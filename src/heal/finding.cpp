// Decides whether a device is one of this node's volumes.
#include <sys/stat.h>

#include <algorithm>
#include <boost/json/parse.hpp>

#include "corbd/core/file.hpp"
#include "corbd/heal/finder.hpp"
#include "corbd/plan/planner.hpp"
#include "corbd/volume/stash_file.hpp"

namespace corbd::heal {
namespace {

constexpr std::size_t kMaxFile = 65536;

/// We assume that clocks that nobody could compare differ by no more than this.
constexpr std::chrono::minutes kClocksDiffer{5};
constexpr const char* kAway =
    ": since then it was detached from this node, and another node may have written it. End its pods on this node, so "
    "that it is unstaged";

Error refuse(std::string why) { return {errc::failed_precondition, std::move(why)}; }

}  // namespace

result<std::string> staging_path_of(const kube::PersistentVolume& volume, const std::string& kubelet_dir,
                                    const std::vector<std::string>& mounts) {
  const std::string below = kubelet_dir + "/plugins/kubernetes.io/csi/";
  std::vector<std::string> paths;
  if (volume.mode == "Block") {
    paths.push_back(below + "volumeDevices/staging/" + volume.name);
  } else {
    paths.push_back(below + volume.driver + "/" + sha256_hex(volume.handle) + "/globalmount");
    paths.push_back(below + "pv/" + volume.name + "/globalmount");  // kubelets before 1.24
  }
  for (const auto& path : paths)
    if (std::ranges::find(mounts, plan::staging_target(volume.handle, path)) != mounts.end()) return path;
  return Error{errc::not_found,
               "its device is not mounted at " + paths.front() + ": kubelet stages it again, or unstages it"};
}

result<> check(const kube::PersistentVolume& volume, const std::string& driver, const std::string& handle) {
  const std::string name = "PersistentVolume " + volume.name;
  if (volume.driver.empty()) return refuse(name + " is not a CSI volume");
  if (volume.driver != driver) return refuse(name + " belongs to driver " + volume.driver);
  if (volume.handle != handle) return refuse(name + " belongs to volume " + volume.handle);
  if (volume.deleting) return refuse(name + " is being deleted");
  if (!volume.bound) return refuse(name + " is not bound");
  if (!volume.mode.empty() && volume.mode != "Filesystem" && volume.mode != "Block")
    return refuse(name + " has the unknown volumeMode " + volume.mode);
  if (volume.access_modes.empty()) return refuse(name + " has no access mode");
  if (!volume.node_stage_secret) return refuse(name + " names no nodeStageSecretRef");
  return {};
}

result<> check(const Traces& traces, const kube::VolumeAttachment& attachment,
               std::optional<std::chrono::milliseconds> ahead) {
  if (!traces.staged) return refuse("there is no image-meta.json at its staging path");
  if (!traces.attachment.empty()) {
    if (traces.attachment == attachment.uid) return {};
    return refuse("it was staged under another VolumeAttachment (UID " + traces.attachment + ", now " + attachment.uid +
                  ")" + kAway);
  }
  if (!attachment.created) return refuse("its VolumeAttachment has no creationTimestamp");
  // In the server's time. If both happened within one second, the server's next answer tells which came first.
  const auto staged = *traces.staged + ahead.value_or(std::chrono::milliseconds(0));
  if (staged < *attachment.created) return refuse(std::string("it was staged before it was attached") + kAway);
  if (!ahead && staged - kClocksDiffer < *attachment.created)
    return refuse("its image-meta.json is less than " + std::to_string(kClocksDiffer.count()) +
                  " minutes younger than its VolumeAttachment, and the API server's answers have no Date to compare "
                  "the clocks by. So it may have been staged before it was attached: restart kubelet, which stages it "
                  "again, or end its pods on this node");
  return {};
}

result<Traces> read_traces(const std::string& staging_path) {
  Traces traces;
  struct stat status{};
  if (::stat((staging_path + "/image-meta.json").c_str(), &status) == 0)
    traces.staged = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec) +
                    std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  if (const auto stash = volume::read_stash(staging_path); stash && *stash) traces.attachment = (*stash)->attachment;
  const auto text = read_file(staging_path.substr(0, staging_path.rfind('/')) + "/vol_data.json", kMaxFile);
  if (!text) return traces;
  boost::system::error_code failed;
  const auto parsed = boost::json::parse(*text, failed);
  const auto* object = failed ? nullptr : parsed.if_object();
  const auto* context = object == nullptr ? nullptr : object->if_contains("seLinuxMountContext");
  if (context != nullptr && context->is_string()) traces.selinux_context = context->get_string();
  return traces;
}

}  // namespace corbd::heal
