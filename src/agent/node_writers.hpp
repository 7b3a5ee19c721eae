// What of this node may write to a cluster, besides its agent's own clients.
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

/// Each kind of thing is looked at before what it leaves when it ends.
task<fence::NodeWriters> look_for_writers(NodeParts parts, Until until);

}  // namespace corbd::agent
