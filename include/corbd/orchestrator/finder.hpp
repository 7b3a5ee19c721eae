// Finds volumes that no record names (a new install over ceph-csi, a lost state directory) or whose key is gone (a
// replaced pod). From the API server's objects it makes the wish of a stage, and the planner decides whether the volume
// is ours. A device carries its volume ID, or is mounted at a path that has it, so nothing is ever listed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "corbd/core/async_lock.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/kube/attachment.hpp"
#include "corbd/orchestrator/attachments.hpp"

namespace corbd::orchestrator {

/// The arguments that kubelet would pass to NodeStageVolume. access_mode is in a PersistentVolume's form.
struct StageArguments {
  std::string volume_id, staging_path, fstype, access_mode;
  bool block = false;
  std::vector<std::string> mount_flags;
  std::map<std::string, std::string> publish_context, volume_context;
  std::map<std::string, Secret> secrets;
};

/// Traces of an earlier stage at a staging path.
struct Traces : kube::StageTraces {
  std::string selinux_context;  ///< from kubelet's vol_data.json
};
result<Traces> read_traces(const std::string& staging_path);

/// Returns where kubelet staged the volume: the layout (docs/sources.md#kubelet-paths) at which the device is mounted.
/// not_found: it is mounted at none of them.
result<std::string> staging_path_of(const kube::PersistentVolume& volume, const std::string& plugins_dir,
                                    const std::vector<std::string>& mounts);

/// Control thread only; stop() before it is destroyed.
class Finder {
 public:
  struct Config {
    std::string driver, node, plugins_dir;
    std::chrono::seconds look_every{30}, answer_within{30}, stage_within{120};
    std::size_t at_once = 4;
    /// Called with the PersistentVolume of a volume, once it is known.
    std::function<void(const std::string& volume_id, const kube::PersistentVolume& volume)> learned = nullptr;
  };
  using MakeWish = std::function<result<plan::Wish>(const StageArguments& arguments)>;

  Finder(executor control, Clock& clock, BlockingPool& pool, result<kube::Api*> api, Attachments& attachments,
         volume::Volumes& volumes, MakeWish make_wish, Config config);
  ~Finder();

  /// Checks every unclaimed device, now and from then on.
  void start();
  task<> stop(Until until);
  /// Returns why such a device is not served, by volume ID.
  const std::map<std::string, std::string>& left() const { return left_; }

 private:
  void look();
  task<> find(std::string volume_id);
  task<result<>> attempt(std::string volume_id);
  task<result<boost::json::object>> get(kube::Resource resource, std::string name, std::string what);
  std::vector<volume::Unclaimed> waiting() const;
  bool is_unclaimed(const std::string& volume_id) const;

  executor control_;
  Clock& clock_;
  BlockingPool& pool_;
  const result<kube::Api*> api_;
  Attachments& attachments_;
  volume::Volumes& volumes_;
  const MakeWish make_wish_;
  const Config config_;
  std::map<std::string, std::string> left_;
  Clock::TimerId timer_ = 0;
  CancelScope stopping_;
  Slots slots_;
  Gate gate_;
};

}  // namespace corbd::orchestrator
