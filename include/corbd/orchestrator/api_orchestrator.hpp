// Implements the shell's questions to the API server: who has a volume, and with which user and key. Only a volume that
// has no other proof, or whose own user or key the cluster refuses, waits for the answer.
#pragma once

#include "corbd/orchestrator/attachments.hpp"
#include "corbd/orchestrator/holder_nodes.hpp"
#include "corbd/orchestrator/stage_secrets.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::orchestrator {

/// Control thread only; stop() before it is destroyed.
class ApiOrchestrator final : public volume::Orchestrator {
 public:
  /// `api`: an error if there is no API server.
  /// `read`: parses a Secret's fields.
  ApiOrchestrator(const executor& control, Clock& clock, const result<kube::Api*>& api,
                  const Attachments::Config& config, StageSecrets::Read read)
      : attachments_(control, clock, api, config),
        holder_nodes_(control, clock, read_nodes(api, config.driver), {}),
        stage_secrets_(control, clock, api, {config.driver, config.node, std::move(read)}) {}

  task<plan::Attachment> attachment(std::string volume_id) override { return attachments_.ask(std::move(volume_id)); }
  task<plan::HolderNode> holder_node(plan::HolderQuery query) override {
    return holder_nodes_.find(std::move(query), stopping_);
  }
  task<plan::StageSecret> stage_secret(std::string volume_id, std::string persistent_volume,
                                       volume::SecretAge age) override {
    return stage_secrets_.find(std::move(volume_id), std::move(persistent_volume), stopping_, age);
  }
  Attachments& attachments() { return attachments_; }
  task<> stop(Until until) {
    stopping_.cancel();
    co_await holder_nodes_.stop(until);
    co_await attachments_.stop(until);
  }

 private:
  CancelScope stopping_;
  Attachments attachments_;
  HolderNodes holder_nodes_;
  StageSecrets stage_secrets_;
};

}  // namespace corbd::orchestrator
