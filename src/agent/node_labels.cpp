#include "node_labels.hpp"

namespace corbd::agent {

void NodeLabels::want() {
  if (!options_.domainlabels.empty() || options_.read_affinity) static_cast<void>(labels());
}

result<csi::Labels> NodeLabels::labels() {
  if (by_hand()) return csi::parse_labels(options_.topology);
  node_.start();
  return node_.labels();
}

result<csi::Labels> NodeLabels::topology() {
  std::string wanted = options_.domainlabels;
  if (wanted.empty() && !by_hand()) return csi::Labels();
  const auto known = labels();
  if (!known) return known.error();
  if (wanted.empty())
    for (const auto& [label, value] : *known) wanted += (wanted.empty() ? "" : ",") + label;
  return csi::topology_of(options_.drivername, wanted, *known);
}

result<cephcsi::ReadPolicy> NodeLabels::read_policy(const rbd::ClusterEntry& cluster) {
  const bool by_labels = cluster.read_affinity && !cluster.balance_reads && options_.crush_location.empty();
  return cephcsi::read_policy({.of_cluster = cluster.read_affinity,
                               .balance = cluster.balance_reads,
                               .cluster_labels = cluster.crush_labels,
                               .of_node = options_.read_affinity,
                               .node_labels = cephcsi::label_names(options_.crush_labels),
                               .location = options_.crush_location},
                              by_labels ? labels() : csi::Labels());
}

}  // namespace corbd::agent
