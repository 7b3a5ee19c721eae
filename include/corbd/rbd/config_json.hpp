// ceph-csi's config.json: the monitors and RADOS namespace of each cluster id. Keys match in any case, as Go's JSON
// does (docs/sources.md#config-json). It is read anew for every request, because it is a ConfigMap that changes under
// us.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::rbd {

struct ClusterEntry {
  std::string cluster_id;
  std::vector<std::string> monitors;
  std::string rados_namespace;  ///< "" is the default one
  bool read_affinity = false;   ///< reads go to the nearest OSD
  bool balance_reads = false;   ///< with read_affinity: to any OSD that has the data instead
  std::vector<std::string> crush_labels =
      {};                                 ///< the node's labels that say where it is; empty: those of the command line
  std::vector<std::string> ignored = {};  ///< a sentence for each key that is set, but without effect here
};

/// Returns the entry of `cluster_id`, the first one if there are two. not_found names the existing IDs.
/// failed_precondition: the entry is empty, or has no monitors. invalid_argument: not JSON, or a value of another type
/// than ceph-csi reads. Faults in other clusters' entries do no harm.
result<ClusterEntry> parse_config_json(std::string_view text, std::string_view cluster_id);
/// Returns every entry, also one without monitors. invalid_argument: not JSON, or an entry that is no object.
result<std::vector<ClusterEntry>> parse_clusters(std::string_view text);
/// Calls parse_config_json() for `<dir>/config.json`.
result<ClusterEntry> find_cluster(const std::string& config_dir, std::string_view cluster_id);

}  // namespace corbd::rbd
