// The user and key that a volume's node-stage Secret has now, for a volume whose own the cluster refuses. One Secret
// serves many volumes, so it is read once for all of them, and not again at each refusal.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "corbd/core/wait.hpp"
#include "corbd/orchestrator/volume_objects.hpp"
#include "corbd/plan/credential.hpp"

namespace corbd::orchestrator {

/// Control thread only.
class StageSecrets {
 public:
  using Read = std::function<result<plan::Credential>(const std::map<std::string, Secret>& secrets)>;
  struct Config {
    std::string driver, node;
    Read read;
    std::chrono::seconds answer_within{10};
  };
  /// `api`: an error if there is no API server.
  StageSecrets(executor control, Clock& clock, result<kube::Api*> api, Config config);

  /// `persistent_volume`: as VolumeObjects::find() takes it.
  task<plan::StageSecret> find(std::string volume_id, std::string persistent_volume, CancelScope& leaving);

 private:
  struct Known {
    plan::StageSecret last;
    time_point again{};       ///< until then it stands
    std::uint32_t reads = 0;  ///< in a row with the same answer
    std::shared_ptr<Event> under_way = nullptr;
  };
  task<> read(Known& known, kube::Reference secret, Until until);
  executor control_;
  Clock& clock_;
  const result<kube::Api*> api_;
  const Config config_;
  VolumeObjects objects_;
  std::map<std::string, Known> known_;  ///< by namespace and name
};

}  // namespace corbd::orchestrator
