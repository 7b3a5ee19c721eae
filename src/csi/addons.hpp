// The CSI-Addons services of a node: Identity, giving back what a filesystem does not use, another key for an encrypted
// volume.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "corbd/csi/server.hpp"
#include "corbd/rpc/server.hpp"

namespace corbd::csi {

/// The arguments outlive what is returned.
std::vector<std::unique_ptr<grpc::Service>> make_addons(rpc::Server& server, volume::Volumes& volumes,
                                                        const Config& config);

}  // namespace corbd::csi
