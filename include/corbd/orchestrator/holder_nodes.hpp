// Which node a foreign client of an image runs on, and whether that node is alive: by the API server.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/async_lock.hpp"
#include "corbd/core/backoff.hpp"
#include "corbd/kube/objects.hpp"
#include "corbd/plan/holder.hpp"

namespace corbd::orchestrator {

/// What a Node object says of its node. Pure.
plan::HolderNode judge_node(std::string name, const kube::answer<kube::Node>& node);

/// What the API server knows of nodes.
class NodeReader {
 public:
  virtual ~NodeReader() = default;
  virtual task<kube::answer<kube::Node>> node(std::string name, Until until) = 0;
  /// All, as they are at the moment of the question, by name and addresses alone.
  virtual task<kube::answer<std::vector<kube::Node>>> nodes(Until until) = 0;
  virtual task<kube::answer<kube::VolumeAttachment>> attachment(std::string volume_id, std::string node,
                                                                Until until) = 0;
};
/// Null if there is no API server.
std::unique_ptr<NodeReader> read_nodes(const result<kube::Api*>& api, std::string driver);

/// Control thread only.
class HolderNodes {
 public:
  struct Config {
    std::chrono::seconds answer_within{4};  ///< the image is open meanwhile
    /// When a node dies, many agents look for it at once. Each waits a random part of this before it lists all nodes.
    std::chrono::milliseconds spread{1000};
    /// A client that no metadata explains is looked for in a list of all nodes, no more often than this ...
    std::chrono::seconds list_every{300};
    /// ... or than this, to prove a client dead, or after a list that failed.
    std::chrono::seconds list_again{30};
    /// A node without an object counts as a client's only if the client was seen on it so long ago. Ceph may give an
    /// address and its nonce to another client one day.
    std::chrono::seconds remembered_for{3600};
  };
  /// `nodes`: null if there is no API server.
  HolderNodes(const executor& control, Clock& clock, std::unique_ptr<NodeReader> nodes, Config config,
              Jitter random = uniform)
      : control_(control),
        clock_(clock),
        nodes_(std::move(nodes)),
        config_(config),
        random_(std::move(random)),
        listing_(control, clock, "the list of nodes", kMostWaiters) {}

  /// `leaving` ends it.
  task<plan::HolderNode> find(plan::HolderQuery query, CancelScope& leaving);

 private:
  static constexpr std::size_t kMostWaiters = 4096;  // no node has as many volumes
  using Names = std::vector<std::string>;
  /// A client, and the Node object that had its address.
  struct Sighting {
    std::string node, uid;
    time_point last;
    std::uint64_t lists_before = 0;  ///< how many lists had been asked for when it was seen first
    bool moved = false;  ///< another object had the address too, so nobody knows on which node the client is
  };
  struct Wanted {
    duration younger{};
    std::uint64_t after = 0;  ///< asked for after so many others
  };
  struct List {
    time_point at;
    std::uint64_t number = 0;
    kube::answer<std::map<std::string, Names>> by_address;
  };
  task<result<std::string>> name_of(const plan::HolderQuery& query, Until until);
  task<result<Names>> names_at(std::string host, Wanted wanted, Until until);
  bool has_list(const Wanted& wanted) const;
  /// An error: the wait for another one's list ended first.
  task<result<>> list_nodes(Wanted wanted, Until until);
  task<plan::HolderNode> look_at(const plan::HolderQuery& query, std::string name, Until until);
  task<plan::HolderNode> proven(const plan::HolderQuery& query, plan::HolderNode dead, Until until);
  task<> ask_attachment(plan::HolderNode& node, std::string volume_id, Until until);
  const Sighting& note(const std::string& client, const kube::Node& node);
  const Sighting* sighting(const std::string& client) const;

  const executor control_;
  Clock& clock_;
  const std::unique_ptr<NodeReader> nodes_;
  const Config config_;
  const Jitter random_;
  AsyncLock listing_;        ///< who waits for it uses the list that another one read meanwhile
  std::uint64_t lists_ = 0;  ///< asked for
  std::optional<List> list_;
  std::map<std::string, Sighting> seen_;  ///< by the client's address
};

}  // namespace corbd::orchestrator
