// The PersistentVolume of each volume on this node, as the API server had it at the first request.
#pragma once

#include <map>
#include <string>

#include "corbd/core/wait.hpp"
#include "corbd/kube/objects.hpp"

namespace corbd::orchestrator {

/// Control thread only.
class VolumeObjects {
 public:
  struct Config {
    std::string driver, node;  ///< node: its name in the API
    std::chrono::seconds answer_within{10};
  };
  /// `api`: an error if there is no API server.
  VolumeObjects(Clock& clock, result<kube::Api*> api, Config config)
      : clock_(clock), api_(std::move(api)), config_(std::move(config)) {}

  /// Finds it through its VolumeAttachment, whose name can be computed. Without one, as with a driver that has
  /// `attachRequired: false`, it takes the PersistentVolume of the name `else_named`, if it is this volume's.
  /// not_found: it, or the way to it, does not exist.
  task<result<kube::PersistentVolume>> find(std::string volume_id, Until until, std::string else_named = "");
  void know(const std::string& volume_id, kube::PersistentVolume volume) { known_[volume_id] = std::move(volume); }
  void forget(const std::string& volume_id) { known_.erase(volume_id); }

 private:
  Clock& clock_;
  const result<kube::Api*> api_;
  const Config config_;
  std::map<std::string, kube::PersistentVolume> known_;  ///< by volume ID
};

}  // namespace corbd::orchestrator
