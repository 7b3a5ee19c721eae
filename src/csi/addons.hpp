// The CSI-Addons services of a node: Identity, reclaiming space that a filesystem does not use, a new key for an
// encrypted volume, and fencing.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "corbd/csi/server.hpp"
#include "corbd/rpc/server.hpp"

namespace corbd::csi {

/// Role of the process for CSI-Addons. Its controller sends a fence to any endpoint that offers NETWORK_FENCE. A node
/// does not offer it, because the node may be the one to be fenced; it reports its clients' addresses.
enum class Role { node, fencing_only };
std::unique_ptr<grpc::Service> make_identity(const Config& config, Role role);
/// Defined in src/csi/fencing.cpp.
std::unique_ptr<grpc::Service> make_fence_controller(rpc::Server& server, fence::Fencer& fencer);

/// The arguments must outlive the result.
std::vector<std::unique_ptr<grpc::Service>> make_addons(rpc::Server& server, volume::Volumes& volumes,
                                                        const Config& config);

}  // namespace corbd::csi
