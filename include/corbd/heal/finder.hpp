// Volumes that no record names (a new install over ceph-csi, a lost state folder) or whose key is gone (a replaced
// pod): what the API server says of a device makes the wish that a stage would make, and the planner takes it for ours
// or not. A volume's device tells its handle, so nothing is ever listed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "corbd/core/async_lock.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/heal/attachments.hpp"

namespace corbd::heal {

/// What kubelet would say in a NodeStageVolume; access_mode as a PersistentVolume has it.
struct StageArguments {
  std::string volume_id, staging_path, fstype, access_mode;
  bool block = false;
  std::vector<std::string> mount_flags;
  std::map<std::string, std::string> publish_context, volume_context;
  std::map<std::string, Secret> secrets;
};

/// What is left at a staging path.
struct Traces {
  std::optional<std::chrono::system_clock::time_point> staged;  ///< when image-meta.json was written
  std::string selinux_context;                                  ///< of kubelet's vol_data.json
  std::string attachment = "";  ///< UID of the one under which this agent served it; empty: image-meta.json has none
};
result<Traces> read_traces(const std::string& staging_path);

/// Where kubelet stages it: both layouts (docs/sources.md#kubelet-paths); the one at which the device is mounted.
/// not_found: at none of them.
result<std::string> staging_path_of(const kube::PersistentVolume& volume, const std::string& kubelet_dir,
                                    const std::vector<std::string>& mounts);
/// Bound, of this driver, with that handle. failed_precondition says what it is instead.
result<> check(const kube::PersistentVolume& volume, const std::string& driver, const std::string& handle);
/// What was staged before the volume was attached as it is now may have been written elsewhere in between. The
/// attachment's UID beside the volume tells; without one (ceph-csi staged it) times do, of this node's clock and the
/// API server's, which was `ahead` of that by so much or hardly more.
result<> check(const Traces& traces, const kube::VolumeAttachment& attachment,
               std::optional<std::chrono::milliseconds> ahead);

/// Control thread only; stop() before it is destroyed.
class Finder {
 public:
  struct Config {
    std::string driver, node, kubelet_dir;
    std::chrono::seconds look_every{30}, answer_within{30}, stage_within{120};
    std::size_t at_once = 4;
    /// Called with what was learned of a volume on the way.
    std::function<void(const std::string& volume_id, const kube::PersistentVolume& volume)> learned = nullptr;
  };
  using MakeWish = std::function<result<plan::Wish>(const StageArguments& arguments)>;

  Finder(executor control, Clock& clock, BlockingPool& pool, result<kube::Api*> api, Attachments& attachments,
         volume::Volumes& volumes, MakeWish make_wish, Config config);
  ~Finder();

  /// Looks at every device, now and from then on.
  void start();
  task<> stop(Until until);
  /// Why such a device is not served, by volume id.
  const std::map<std::string, std::string>& left() const { return left_; }

 private:
  void look();
  task<> find(std::string volume_id);
  task<result<>> attempt(std::string volume_id);
  task<result<boost::json::object>> get(kube::Resource resource, std::string name, std::string what);
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

}  // namespace corbd::heal
