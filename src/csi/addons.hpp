// The CSI-Addons services of a node: Identity, reclaiming space that a filesystem does not use, and a new key for an
// encrypted volume.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "corbd/csi/server.hpp"
#include "corbd/rpc/server.hpp"

namespace corbd::csi {

/// The arguments must outlive the result.
std::vector<std::unique_ptr<grpc::Service>> make_addons(rpc::Server& server, volume::Volumes& volumes,
                                                        const Config& config);

}  // namespace corbd::csi
