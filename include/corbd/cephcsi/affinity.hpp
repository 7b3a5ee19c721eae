// Chooses the OSD that answers reads: the primary, the one that is nearest to this node by the CRUSH map as ceph-csi
// wants it (docs/sources.md#read-affinity), or any. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::cephcsi {

/// Builds "host:node-1|zone:z1": for each wanted label that the node has ("topology.kubernetes.io/zone"), the label's
/// last part and its value, in which '.' becomes '-'; "hostname" is CRUSH's "host". Sorted by type.
std::string crush_location(const std::map<std::string, std::string>& node_labels,
                           const std::vector<std::string>& wanted);
/// Splits a list at its commas.
std::vector<std::string> label_names(std::string_view list);
/// Checks such a location that an operator wrote; invalid_argument for anything but <type>:<value> between bars.
result<> check_crush_location(std::string_view text);

/// Settings that ask for reads from another OSD than the primary, and sources of the node's location.
struct Affinity {
  bool of_cluster = false;                       ///< config.json's readAffinity.enabled: whether the cluster asks
  bool balance = false;                          ///< its policy: any OSD that has the data, wherever it is
  std::vector<std::string> cluster_labels = {};  ///< its crushLocationLabels
  bool of_node = false;  ///< --enable-read-affinity: uses the node's labels where the cluster names none
  std::vector<std::string> node_labels = {};  ///< --crush-location-labels
  std::string location = {};                  ///< --crush-location, which overrides labels
};

/// Policy for the images of a cluster; a volume's own options override it.
struct ReadPolicy {
  bool balance = false;       ///< reads go to any OSD that has the data
  std::string location = {};  ///< otherwise they go to the OSD nearest to it; empty: to the primary
  bool operator==(const ReadPolicy&) const = default;
};
/// failed_precondition, or the labels' own error, if near reads are wanted and the node's location is unknown.
result<ReadPolicy> read_policy(const Affinity& wished, const result<std::map<std::string, std::string>>& labels);

/// Adds the policy to options of the kernel's client, unless these say themselves where to read.
std::string with_policy(std::string kernel_options, const ReadPolicy& policy);
/// Adds the policy to Ceph's options of a connection. If they ask for near reads and do not say where the node is, the
/// policy says it.
std::map<std::string, std::string> with_policy(std::map<std::string, std::string> config, const ReadPolicy& policy);

}  // namespace corbd::cephcsi
