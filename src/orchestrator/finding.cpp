// Decides whether a device is one of this node's volumes.
#include <sys/stat.h>

#include <algorithm>

#include "corbd/core/file.hpp"
#include "corbd/kube/volume_data.hpp"
#include "corbd/orchestrator/finder.hpp"
#include "corbd/plan/planner.hpp"
#include "corbd/volume/stash_file.hpp"

namespace corbd::orchestrator {
namespace {

constexpr std::size_t kMaxFile = 65536;

}  // namespace

result<std::string> staging_path_of(const kube::PersistentVolume& volume, const std::string& plugins_dir,
                                    const std::vector<std::string>& mounts) {
  const std::string below = plugins_dir + "/kubernetes.io/csi/";
  std::vector<std::string> paths;
  if (volume.mode == "Block") {
    paths.push_back(below + "volumeDevices/staging/" + volume.name);
  } else {
    paths.push_back(below + volume.driver + "/" + sha256_hex(volume.handle) + "/globalmount");
    paths.push_back(below + "pv/" + volume.name + "/globalmount");  // used by kubelets before 1.24
  }
  for (const auto& path : paths)
    if (std::ranges::find(mounts, plan::staging_target(volume.handle, path)) != mounts.end()) return path;
  return Error{errc::not_found,
               "its device is not mounted at " + paths.front() + ": kubelet stages it again, or unstages it"};
}

result<Traces> read_traces(const std::string& staging_path) {
  Traces traces;
  struct stat status{};
  if (::stat((staging_path + "/image-meta.json").c_str(), &status) == 0)
    traces.staged = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec) +
                    std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  if (const auto stash = volume::read_stash(staging_path); stash && *stash) traces.attachment = (*stash)->attachment;
  const auto text = read_file(staging_path.substr(0, staging_path.rfind('/')) + "/vol_data.json", kMaxFile);
  if (text) traces.selinux_context = kube::parse_volume_data(*text).selinux_context;
  return traces;
}

}  // namespace corbd::orchestrator
