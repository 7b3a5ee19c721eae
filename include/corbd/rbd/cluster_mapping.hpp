// ceph-csi's cluster-mapping.json: the other cluster and pool of a volume after a failover. Optional; keys match in any
// case, each pair both ways (docs/sources.md#cluster-mapping). It is read anew for every request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/image/image.hpp"

namespace corbd::rbd {

struct ClusterMapping {
  std::vector<std::pair<std::string, std::string>> clusters;  ///< ids, in the file's order
  std::vector<std::pair<std::string, std::string>> pools;     ///< ids of RBD pools, decimal
  bool operator==(const ClusterMapping&) const = default;
};

/// invalid_argument names the key.
result<std::vector<ClusterMapping>> parse_cluster_mapping(std::string_view text);

/// Returns the other places of a volume, by its ID, in the order to try: every pool mapping of every entry that maps
/// its cluster. invalid_argument: the other pool is no number.
result<std::vector<image::Place>> mapped_places(const std::vector<ClusterMapping>& mappings, const image::Place& of);
/// Returns the clusters to which this one is mapped, in the order to try.
std::vector<std::string> mapped_clusters(const std::vector<ClusterMapping>& mappings, std::string_view cluster_id);

/// Calls parse_cluster_mapping() for `<dir>/cluster-mapping.json`; empty if there is no such file.
result<std::vector<ClusterMapping>> read_cluster_mapping(const std::string& config_dir);
/// Does the work of the two functions above for the present file.
result<std::vector<image::Place>> mapped_places(const std::string& config_dir, const image::Place& of);
result<std::vector<std::string>> mapped_clusters(const std::string& config_dir, std::string_view cluster_id);

}  // namespace corbd::rbd
