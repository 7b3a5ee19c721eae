// Follows this node's volumes at the API server: their attachments, volumes that only it knows, volumes that kubelet
// forgot, and Events for people. Without an API server none of it does anything.
#pragma once

#include "corbd/kube/own_node.hpp"
#include "corbd/orchestrator/api_orchestrator.hpp"
#include "corbd/orchestrator/finder.hpp"
#include "corbd/orchestrator/orphans.hpp"
#include "corbd/orchestrator/reporter.hpp"
#include "corbd/orchestrator/startup_taint.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::orchestrator {

/// Control thread only; stop() before it is destroyed.
class Kubernetes final : public volume::Listener {
 public:
  struct Config {
    std::string driver, node, plugins_dir;
    bool unstage_orphans = false;
    bool remove_startup_taint = false;
  };
  struct Needs {
    BlockingPool& pool;
    result<kube::Api*> api;  ///< an error if there is no API server
    kube::OwnNode& own;
    ApiOrchestrator& orchestrator;
    volume::Volumes& volumes;
    Finder::MakeWish make_wish;
  };
  Kubernetes(executor control, Clock& clock, const Needs& needs, const Config& config);

  void start();
  void changed(const volume::Change& change) override;
  void used(const std::string& volume_id) override;
  /// Returns the StorageClass of a volume that is not staged here, from its PersistentVolume; empty: it has none.
  task<result<std::string>> storage_class(std::string volume_id, Until until);
  void notify(const std::string& volume_id, const volume::Notice& notice) override {
    reporter_.tell(volume_id, {notice.reason, notice.warning, notice.message});
  }
  void notify_node(const volume::Notice& notice) {
    reporter_.tell_node({notice.reason, notice.warning, notice.message});
  }
  /// Reports an operator override, and how its try ended. `by`: the operator; empty: unknown.
  void report_override(const std::string& volume_id, const plan::Healed& word, const std::string& by,
                       const result<>& done) {
    reporter_.tell(volume_id, override_notice(word, by, done));
  }
  /// Returns why an unclaimed device is not served, by volume ID.
  const std::map<std::string, std::string>& left() const { return finder_.left(); }
  /// Returns why the node still has its startup taint; empty: it has none.
  const std::string& startup_taint() const { return taint_.why(); }
  task<> stop(Until until);

 private:
  kube::OwnNode& own_;
  volume::Volumes& volumes_;
  ApiOrchestrator& orchestrator_;
  VolumeObjects objects_;
  Reporter reporter_;
  Finder finder_;
  Orphans orphans_;
  StartupTaint taint_;
};

}  // namespace corbd::orchestrator
