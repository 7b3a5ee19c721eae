// Which node a foreign client of an image runs on, and whether that node is alive: by the API server.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>

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
    std::chrono::seconds answer_within{3};  ///< the image is open meanwhile
    /// A client that no metadata explains is looked for in a list of all nodes, no more often than this ...
    std::chrono::seconds list_every{300};
    /// ... or than this, if the node that metadata names has no object any more.
    std::chrono::seconds list_again{30};
  };
  /// `api`: an error if there is no API server.
  HolderNodes(Clock& clock, result<kube::Api*> api, Config config)
      : clock_(clock), api_(std::move(api)), config_(std::move(config)) {}

  /// volume::Orchestrator::holder_node. `leaving` ends it.
  task<plan::HolderNode> find(std::string volume_id, std::string host, plan::Noted noted, CancelScope& leaving);

 private:
  task<std::string> name_of(std::string host, plan::Noted noted, Until until);
  /// By a list of all nodes that is no older; empty if no node has the address, or two have it.
  task<std::string> listed_name(std::string host, std::chrono::seconds no_older, Until until);
  task<kube::answer<kube::Node>> get(std::string name, Until until);
  task<> ask_attachment(plan::HolderNode& node, std::string volume_id, Until until);

  Clock& clock_;
  const result<kube::Api*> api_;
  const Config config_;
  std::map<std::string, std::string> names_;            ///< of the last list, by address; "": two nodes have it
  std::set<std::pair<std::string, std::string>> seen_;  ///< nodes that were there, each with the address of a holder
  std::optional<time_point> listed_;
};

}  // namespace corbd::heal
