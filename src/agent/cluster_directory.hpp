// The shell's port to the configuration of clusters: ceph-csi's config.json and cluster-mapping.json, or Ceph's own
// configuration file.
#pragma once

#include <string>
#include <vector>

#include "corbd/agent/options.hpp"
#include "corbd/volume/ports.hpp"
#include "node_labels.hpp"

namespace corbd::agent {

/// Returns the monitors of that cluster in config.json, or in --ceph-conf.
result<std::vector<std::string>> monitors_of(const Options& options, const std::string& cluster_id);

class ClusterDirectory final : public volume::ClusterDirectory {
 public:
  ClusterDirectory(const Options& options, NodeLabels& labels) : options_(options), labels_(labels) {}
  result<volume::Cluster> find(const std::string& cluster_id) const override;
  result<std::vector<image::Place>> mirrors_of(const image::Place& place) const override;
  result<std::vector<std::string>> mirrors_of(const std::string& cluster_id) const override;

 private:
  const Options& options_;
  NodeLabels& labels_;
};

}  // namespace corbd::agent
