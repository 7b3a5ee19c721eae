// Reads the present user and key of a volume's node-stage Secret. One Secret serves many volumes, so it is read once
// for all of them, and not again at each refusal.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "corbd/core/wait.hpp"
#include "corbd/orchestrator/volume_objects.hpp"
#include "corbd/plan/credential.hpp"
#include "corbd/volume/ports.hpp"

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

  /// `persistent_volume`: see VolumeObjects::find().
  task<plan::StageSecret> find(std::string volume_id, std::string persistent_volume, CancelScope& leaving,
                               volume::SecretAge age = volume::SecretAge::named_now);

 private:
  struct Known {
    plan::StageSecret last;
    time_point again{};       ///< the answer is valid until then
    std::uint32_t reads = 0;  ///< consecutive reads with the same answer
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
