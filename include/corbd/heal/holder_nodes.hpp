// Which node a foreign client of an image runs on, and whether that node is alive: by the API server.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "corbd/kube/objects.hpp"
#include "corbd/plan/holder.hpp"

namespace corbd::heal {

/// What a Node object says of its node. Pure.
plan::HolderNode judge_node(std::string name, const kube::answer<kube::Node>& node);

/// Control thread only.
class HolderNodes {
 public:
  struct Config {
    std::string driver;
    std::chrono::seconds answer_within{10};
    /// A client that no metadata explains is looked for in a list of all nodes, no more often than this.
    std::chrono::minutes list_every{5};
  };
  /// `api`: an error if there is no API server.
  HolderNodes(Clock& clock, result<kube::Api*> api, Config config)
      : clock_(clock), api_(std::move(api)), config_(std::move(config)) {}

  /// volume::Orchestrator::holder_node. `leaving` ends it.
  task<plan::HolderNode> find(std::string volume_id, std::string host, plan::Noted noted, CancelScope& leaving);

 private:
  task<std::string> name_of(std::string host, plan::Noted noted, Until until);
  /// By a list of all nodes.
  task<std::string> listed_name(std::string host, Until until);
  task<kube::answer<kube::Node>> get(std::string name, Until until);
  task<> ask_attachment(plan::HolderNode& node, std::string volume_id, Until until);

  Clock& clock_;
  const result<kube::Api*> api_;
  const Config config_;
  std::map<std::string, std::string> names_;  ///< of the last list, by address
  std::optional<time_point> listed_;
};

}  // namespace corbd::heal
