// Says what is wrong with the clusters as seen from this node, for NodeGetStorageHealth. Pure.
#pragma once

#include <string>
#include <vector>

#include "corbd/ops/node_health.hpp"

namespace corbd::ops {

/// A condition of one or more clusters, in the terms of CSI 1.13.
struct StorageCondition {
  bool unreachable = false;  ///< their volumes cannot be used on this node; otherwise some wait
  std::string reason;        ///< CamelCase; unique in an answer
  /// Names the clusters that it concerns. kubelet keeps the first message for as long as the reason stays
  /// (docs/sources.md#volume-health), so it has no figures, and names `corbd status`.
  std::string message;
};

/// Returns the conditions of clusters that have a volume on this node; of the others nothing is known. Volumes that
/// only the next agent cannot serve (ClusterFacts::refused_again) are none.
std::vector<StorageCondition> storage_conditions(const NodeFacts& facts);

}  // namespace corbd::ops
