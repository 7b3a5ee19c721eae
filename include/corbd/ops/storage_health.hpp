// Says what is wrong with the clusters as seen from this node, for NodeGetStorageHealth. Pure.
#pragma once

#include <string>
#include <vector>

#include "corbd/ops/node_health.hpp"

namespace corbd::ops {

/// A condition of one or more clusters, in the terms of CSI 1.13.
struct StorageCondition {
  bool unreachable = false;  ///< their volumes cannot be used on this node; otherwise some wait, or all are slow
  std::string reason;        ///< CamelCase; unique in an answer
  std::string message;       ///< names every cluster that it concerns
};

/// Returns what judge() finds wrong with clusters. A cluster without a volume on this node is unknown, so it counts as
/// well.
std::vector<StorageCondition> storage_conditions(const NodeFacts& facts);

}  // namespace corbd::ops
