// Finds the node of an image's foreign client, and whether that node is alive, by the API server.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/backoff.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/kube/objects.hpp"
#include "corbd/plan/holder.hpp"

namespace corbd::orchestrator {

/// Judges a node by its Node object. Pure.
plan::HolderNode judge_node(std::string name, const kube::answer<kube::Node>& node);

/// Port to the Node objects of the API server.
class NodeReader {
 public:
  virtual ~NodeReader() = default;
  virtual task<kube::answer<kube::Node>> node(std::string name, Until until) = 0;
  /// Returns all nodes at the moment of the call, with names and addresses alone.
  virtual task<kube::answer<std::vector<kube::Node>>> nodes(Until until) = 0;
  virtual task<kube::answer<kube::VolumeAttachment>> attachment(std::string volume_id, std::string node,
                                                                Until until) = 0;
};
/// Returns null if there is no API server.
std::unique_ptr<NodeReader> read_nodes(const result<kube::Api*>& api, std::string driver);

/// Control thread only; stop() before it is destroyed, unless the process ends.
class HolderNodes {
 public:
  struct Config {
    std::chrono::seconds answer_within{4};  ///< limit of an answer: the image is open meanwhile
    /// When a node dies, many agents search for it at once. Each waits a random part of this before it lists all nodes.
    std::chrono::milliseconds spread{1000};
    /// Limit of a list. It may take longer than a find(), which then ends without it. A later find() uses it.
    std::chrono::seconds list_within{60};
    /// A client that no metadata explains is searched in a list of all nodes. This is the least time from the end of
    /// one list to the next.
    std::chrono::seconds list_every{300};
    /// The same, for a proof that a client is dead, or after a list that failed.
    std::chrono::seconds list_again{30};
    /// Time that such a proof waits for that list before it uses an older one. That one is at most `list_every` old,
    /// and was requested after the client's node was seen dead: a list that takes longer than a find() is never
    /// younger.
    std::chrono::seconds newest_within{2};
    /// A node without an object counts as a client's only if the client was seen on it within this time. Ceph may give
    /// an address and its nonce to another client one day.
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
        gate_(control, clock) {}

  /// `leaving` ends the search.
  task<plan::HolderNode> find(plan::HolderQuery query, CancelScope& leaving);
  /// Ends the list that is being read.
  task<> stop(Until until);

 private:
  using Names = std::vector<std::string>;
  /// A client, and the Node object that had its address.
  struct Sighting {
    std::string node, uid;
    time_point last;
    std::uint64_t lists_before = 0;  ///< number of lists requested before it was first seen
    std::optional<std::uint64_t> lists_before_death = std::nullopt;  ///< the same, before its node was found dead
    bool moved = false;  ///< another object had the address too, so the client's node is unknown
  };
  struct Wanted {
    duration younger{};
    std::uint64_t after = 0;  ///< number of lists requested before it
  };
  struct List {
    time_point read;  ///< time when its last page came
    std::uint64_t number = 0;
    kube::answer<std::map<std::string, Names>> by_address;
  };
  task<result<std::string>> name_of(const plan::HolderQuery& query, Until until);
  task<result<Names>> names_at(std::string host, Wanted wanted, Until until);
  bool has_list(const Wanted& wanted) const;
  result<Names> names_in_list(const std::string& host) const;
  task<> read_list();
  task<plan::HolderNode> look_at(const plan::HolderQuery& query, std::string name, Until until);
  task<plan::HolderNode> proven(const plan::HolderQuery& query, plan::HolderNode dead, Until until);
  task<> ask_attachment(plan::HolderNode& node, std::string volume_id, Until until);
  const Sighting& note(const std::string& client, const kube::Node& node);
  Sighting* sighting(const std::string& client);

  const executor control_;
  Clock& clock_;
  const std::unique_ptr<NodeReader> nodes_;
  const Config config_;
  const Jitter random_;
  std::shared_ptr<Event> reading_;  ///< set once the list that all callers wait for is read; null: nobody reads one
  std::uint64_t lists_ = 0;         ///< number of lists requested
  std::optional<List> list_;
  std::map<std::string, Sighting> seen_;  ///< by the client's address
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::orchestrator
