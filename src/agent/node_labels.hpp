// Where this node is: the labels of its Node object, or those set by hand, and what follows from them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "corbd/agent/options.hpp"
#include "corbd/cephcsi/affinity.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/csi/topology.hpp"
#include "corbd/kube/own_node.hpp"
#include "corbd/rbd/config_json.hpp"
#include "latest_file.hpp"

namespace corbd::agent {

class NodeLabels {
 public:
  /// Reads the labels that an earlier agent of this boot stored. `files`: runs the writes that store them.
  NodeLabels(const Options& options, kube::OwnNode& node, BlockingPool& files);

  /// Asks for the Node object early, if something will need it.
  void want();
  /// Answers NodeGetInfo; empty without labels.
  result<csi::Labels> topology();
  /// Returns cephcsi::read_policy() for a cluster with that entry in config.json. unavailable: the labels are not known
  /// yet. After a crash or in a handover, images are opened before the API server has answered; until then the labels
  /// that an earlier agent stored count.
  result<cephcsi::ReadPolicy> read_policy(const rbd::ClusterEntry& cluster);

 private:
  result<csi::Labels> labels();
  void remember();
  /// Labels set by hand replace those of the Node object.
  bool by_hand() const { return !options_.topology.empty(); }

  const Options& options_;
  kube::OwnNode& node_;
  BlockingPool& files_;
  const std::shared_ptr<LatestFile> file_;
  csi::Labels remembered_;  ///< labels of the Node object; empty: none
};

}  // namespace corbd::agent
