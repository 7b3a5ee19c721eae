// Read affinity: reads go to the OSD that is nearest to this node by the CRUSH map, as ceph-csi wishes it
// (docs/sources.md#read-affinity). Pure.
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

/// Who wishes near reads, and what says where the node is.
struct Affinity {
  bool of_cluster = false;                       ///< config.json's readAffinity.enabled: without it there are none
  std::vector<std::string> cluster_labels = {};  ///< its crushLocationLabels
  bool of_node = false;  ///< --enable-read-affinity: with the node's labels, where the cluster names none
  std::vector<std::string> node_labels = {};  ///< --crush-location-labels
  std::string location = {};                  ///< --crush-location, which knows better than labels
};
/// The node's place for the reads of a cluster; "" when they go to the primary OSD. failed_precondition, or the labels'
/// own error, when near ones are wished and the place is not known.
result<std::string> location_for(const Affinity& wished, const result<std::map<std::string, std::string>>& labels);

/// Options of the kernel's client that read near `location`; as they are when it is empty, or when they say themselves
/// where to read.
std::string with_kernel_affinity(std::string options, const std::string& location);
/// The same for Ceph's options of a connection.
std::map<std::string, std::string> with_affinity(std::map<std::string, std::string> config,
                                                 const std::string& location);

}  // namespace corbd::cephcsi
