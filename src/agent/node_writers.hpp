// Everything on this node that may write to a cluster, besides its agent's own clients.
#pragma once

#include "corbd/core/blocking_pool.hpp"
#include "corbd/device/kernel_client.hpp"
#include "corbd/device/served.hpp"
#include "corbd/fence/self_check.hpp"
#include "corbd/host/host.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::agent {

struct NodeParts {
  const volume::Volumes& volumes;
  const device::Served& devices;
  const device::KernelClient& kernel;
  const host::Mounts& mounts;
  BlockingPool& files;
};

/// Looks at each kind of writer before it looks at what that kind leaves when it ends.
task<fence::NodeWriters> look_for_writers(NodeParts parts, Until until);

}  // namespace corbd::agent
