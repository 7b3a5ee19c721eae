#include "cluster_directory.hpp"

#include "corbd/rbd/ceph_conf.hpp"
#include "corbd/rbd/cluster_mapping.hpp"

namespace corbd::agent {

result<volume::Cluster> ClusterDirectory::find(const std::string& cluster_id) const {
  auto entry = rbd::find_cluster(options_.config_dir, options_.ceph_conf, cluster_id);
  if (!entry) return entry.error();
  volume::Cluster cluster{entry->monitors, entry->rados_namespace, {}, entry->ignored};
  auto reads = labels_.read_policy(*entry);
  if (reads)
    cluster.reads = std::move(*reads);
  else
    cluster.ignored.push_back("readAffinity: " + reads.error().text +
                              ", so reads go to the primary OSD: see --crush-location");
  if (!reads && reads.error().code == errc::unavailable) cluster.reads_unknown = reads.error().text;
  return cluster;
}

result<std::vector<std::string>> monitors_of(const Options& options, const std::string& cluster_id) {
  auto entry = rbd::find_cluster(options.config_dir, options.ceph_conf, cluster_id);
  if (!entry) return entry.error();
  return std::move(entry->monitors);
}

result<std::vector<image::Place>> ClusterDirectory::mirrors_of(const image::Place& place) const {
  return rbd::mapped_places(options_.config_dir, place);
}

result<std::vector<std::string>> ClusterDirectory::mirrors_of(const std::string& cluster_id) const {
  return rbd::mapped_clusters(options_.config_dir, cluster_id);
}

}  // namespace corbd::agent
