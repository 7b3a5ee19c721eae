#include "corbd/ops/storage_health.hpp"

#include <algorithm>

namespace corbd::ops {
namespace {

/// Adds a condition, or a cluster to the same condition of another one.
void add(std::vector<StorageCondition>& all, bool unreachable, const char* reason, std::string message) {
  const auto same = std::ranges::find(all, reason, &StorageCondition::reason);
  if (same == all.end())
    all.push_back({unreachable, reason, std::move(message)});
  else
    same->message += "; " + message;
}

}  // namespace

std::vector<StorageCondition> storage_conditions(const NodeFacts& facts) {
  std::vector<StorageCondition> all;
  for (const auto& [id, cluster] : facts.clusters) {
    const std::string who = "cluster " + id;
    if (!cluster.node_fenced.empty()) add(all, true, "NodeFenced", who + ": " + cluster.node_fenced);
    if (cluster.does_not_answer) add(all, true, "ClusterUnreachable", who + " does not answer");
    if (!cluster.pool_full.empty()) add(all, false, "PoolFull", who + ": " + cluster.pool_full);
    if (cluster.oldest_request >= kStalled) {
      const auto waits = std::chrono::duration_cast<std::chrono::seconds>(cluster.oldest_request).count();
      add(all, false, "RequestsWait", who + " has not answered a request for " + std::to_string(waits) + " s");
    }
  }
  return all;
}

}  // namespace corbd::ops
