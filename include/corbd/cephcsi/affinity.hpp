// Which OSD answers reads: the primary, the one that is nearest to this node by the CRUSH map as ceph-csi wishes it
// (docs/sources.md#read-affinity), or any. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::cephcsi {

/// "host:node-1|zone:z1": of each wanted label of the node ("topology.kubernetes.io/zone") its last part and its value,
/// in which '.' becomes '-'; "hostname" is CRUSH's "host". In order of the types. Labels that the node does not have
/// are left out.
std::string crush_location(const std::map<std::string, std::string>& node_labels,
                           const std::vector<std::string>& wanted);
/// From a list with commas.
std::vector<std::string> label_names(std::string_view list);
/// The same as an operator writes it; invalid_argument for anything but <type>:<value> between bars.
result<> check_crush_location(std::string_view text);

/// Who wishes other reads than from the primary OSD, and what says where the node is.
struct Affinity {
  bool of_cluster = false;                       ///< config.json's readAffinity.enabled: without it there are none
  bool balance = false;                          ///< its policy: any OSD that has the data, whatever the place
  std::vector<std::string> cluster_labels = {};  ///< its crushLocationLabels
  bool of_node = false;  ///< --enable-read-affinity: with the node's labels, where the cluster names none
  std::vector<std::string> node_labels = {};  ///< --crush-location-labels
  std::string location = {};                  ///< --crush-location, which knows better than labels
};

/// For the images of a cluster; a volume's own options come before it.
struct ReadPolicy {
  bool balance = false;       ///< reads go to any OSD that has the data
  std::string location = {};  ///< otherwise they go to the OSD nearest to it; empty: to the primary
  bool operator==(const ReadPolicy&) const = default;
};
/// failed_precondition, or the labels' own error, when near reads are wished and the place is not known.
result<ReadPolicy> read_policy(const Affinity& wished, const result<std::map<std::string, std::string>>& labels);

/// Options of the kernel's client, with the policy; as they are when they say themselves where to read.
std::string with_policy(std::string kernel_options, const ReadPolicy& policy);
/// The same for Ceph's options of a connection. If they read near, but do not say where the node is, the policy says
/// it.
std::map<std::string, std::string> with_policy(std::map<std::string, std::string> config, const ReadPolicy& policy);

}  // namespace corbd::cephcsi
