// The admin socket's second service: who has an image, and who is fenced from a cluster (proto/corbd/v1/fencing.proto).
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "corbd/fence/fencer.hpp"
#include "corbd/rpc/server.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::ops {

/// The arguments must outlive the result.
std::unique_ptr<grpc::Service> make_fencing(rpc::Server& server, volume::Volumes& volumes, fence::Fencer& fencer);

}  // namespace corbd::ops
