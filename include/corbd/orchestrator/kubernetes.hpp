// Everything that the agent uses Kubernetes for: proofs of ownership, volumes that only the API server knows, volumes
// that kubelet forgot, and events for people. Without an API server none of it does anything. A volume that has its
// proof never waits for the API server.
#pragma once

#include "corbd/kube/own_node.hpp"
#include "corbd/orchestrator/attachments.hpp"
#include "corbd/orchestrator/finder.hpp"
#include "corbd/orchestrator/holder_nodes.hpp"
#include "corbd/orchestrator/orphans.hpp"
#include "corbd/orchestrator/reporter.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::orchestrator {

/// Control thread only; stop() before it is destroyed.
class Kubernetes {
 public:
  struct Config {
    std::string driver, node, kubelet_dir;
    bool unstage_orphans = false, watch_all_attachments = false;
    volume::Listener* listener = nullptr;  ///< told of a volume about which the API server may have a new answer
  };
  struct Needs {
    BlockingPool& pool;
    result<kube::Api*> api;  ///< an error if there is no API server
    kube::OwnNode& own;
    volume::Volumes& volumes;
    Finder::MakeWish make_wish;
  };
  Kubernetes(executor control, Clock& clock, const Needs& needs, const Config& config);

  void start();
  void note(const volume::Change& change);
  task<plan::Attachment> attachment(std::string volume_id) { return attachments_.ask(std::move(volume_id)); }
  task<plan::HolderNode> holder_node(plan::HolderQuery query) {
    return holder_nodes_.find(std::move(query), stopping_);
  }
  /// Of the PersistentVolume of a volume that is not staged here; empty: it has none.
  task<result<std::string>> storage_class(std::string volume_id, Until until);
  void notify(const std::string& volume_id, const volume::Notice& notice) {
    reporter_.tell(volume_id, {notice.reason, notice.warning, notice.message});
  }
  void notify_node(const volume::Notice& notice) {
    reporter_.tell_node({notice.reason, notice.warning, notice.message});
  }
  /// Reports that an operator gave their word for the volume, and how the try ended. `by`: who; empty: not known.
  void vouched(const std::string& volume_id, const std::string& by, const result<>& done) {
    reporter_.tell(volume_id, vouched_notice(by, done));
  }
  /// Why an unclaimed device is not served, by volume ID.
  const std::map<std::string, std::string>& left() const { return finder_.left(); }
  task<> stop(Until until);

 private:
  kube::OwnNode& own_;
  volume::Volumes& volumes_;
  CancelScope stopping_;
  Attachments attachments_;
  HolderNodes holder_nodes_;
  VolumeObjects objects_;
  Reporter reporter_;
  Finder finder_;
  Orphans orphans_;
};

}  // namespace corbd::orchestrator
