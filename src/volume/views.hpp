// Views of the node's volumes and devices for other rooms.
#pragma once

#include <map>

#include "volume_map.hpp"

namespace corbd::volume {

/// The node's devices and mounts, from one pass.
struct NodeView {
  result<std::vector<device::Seen>> devices;
  result<std::vector<device::Mapped>> mapped;  ///< devices of the kernel's own client
  result<host::MountTable> mounts;
  std::map<std::string, std::string> gone_clusters;  ///< why_cluster_gone(), by clusterID of the volumes
};
NodeView look(const VolumeMap& volumes, const Ports& ports);

/// Implements Volumes::overview().
Overview overview(const VolumeMap& volumes, const NodeView& seen);
/// Implements Volumes::status().
std::vector<Status> status(const VolumeMap& volumes, const NodeView& seen);
std::optional<Status> status(const VolumeMap& volumes, const Ports& ports, const std::string& id);
std::vector<Unclaimed> unclaimed(const VolumeMap& volumes, const result<std::vector<device::Seen>>& devices,
                                 const result<host::MountTable>& mounts);
std::vector<Unclaimed> left_to_kernel(const VolumeMap& volumes, const result<std::vector<device::Mapped>>& mapped,
                                      const result<host::MountTable>& mounts);

}  // namespace corbd::volume
