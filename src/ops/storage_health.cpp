#include "corbd/ops/storage_health.hpp"

#include <array>

#include "corbd/volume/condition.hpp"

namespace corbd::ops {
namespace {

bool is_fenced(const ClusterFacts& of) { return !of.node_fenced.empty(); }
/// A volume that is served is in no queue that asks its cluster; its requests tell. One of them alone may wait for a
/// full pool, or for a placement group.
bool is_unreachable(const ClusterFacts& of) {
  return of.does_not_answer || (of.oldest_request >= volume::kUnreachableAfter && !of.answers_some);
}
bool has_full_pool(const ClusterFacts& of) { return !of.pool_full.empty(); }
bool is_late(const ClusterFacts& of) { return of.oldest_request >= kStalled && !is_unreachable(of); }

struct Row {
  bool (*holds)(const ClusterFacts&);
  bool unreachable;
  const char *reason, *text;
};
constexpr std::array kRows{
    Row{is_fenced, true, "NodeFenced", "refuses every client of this node"},
    Row{is_unreachable, true, "ClusterUnreachable", "does not answer"},
    Row{has_full_pool, false, "PoolFull", "has a full pool, and a volume waits for room in it"},
    Row{is_late, false, "RequestsWait", "has left a request unanswered for 10 s"},
};

}  // namespace

std::vector<StorageCondition> storage_conditions(const NodeFacts& facts) {
  std::vector<StorageCondition> all;
  for (const Row& row : kRows) {
    std::string message;
    for (const auto& [id, cluster] : facts.clusters)
      if (row.holds(cluster)) message += (message.empty() ? "cluster " : ", cluster ") + id + " " + row.text;
    if (!message.empty()) all.push_back({row.unreachable, row.reason, message + ": see `corbd status` on the node"});
  }
  return all;
}

}  // namespace corbd::ops
