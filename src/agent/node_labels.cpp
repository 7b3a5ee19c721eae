#include "node_labels.hpp"

#include "corbd/cephcsi/affinity.hpp"

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

result<std::string> NodeLabels::crush_location(bool of_cluster, const std::vector<std::string>& cluster_labels) {
  const auto known = of_cluster && options_.crush_location.empty() ? labels() : csi::Labels();
  return cephcsi::location_for({.of_cluster = of_cluster,
                                .cluster_labels = cluster_labels,
                                .of_node = options_.read_affinity,
                                .node_labels = cephcsi::label_names(options_.crush_labels),
                                .location = options_.crush_location},
                               known);
}

}  // namespace corbd::agent
