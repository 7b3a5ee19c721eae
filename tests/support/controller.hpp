// CSI's controller calls of the test provisioner, as far as the public conformance suite needs them beside a node
// plugin: CreateVolume, DeleteVolume, ControllerExpandVolume, ValidateVolumeCapabilities, ControllerGetCapabilities,
// and Identity.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "support/provisioner.hpp"

namespace corbd::test {

class Controller {
 public:
  /// endpoint: "unix:///path", or empty for in-process channels only. `pool`: default of a request.
  Controller(rados_t cluster, std::string cluster_id, std::string pool, const std::string& endpoint = {});
  ~Controller();
  grpc::Server& server() { return *server_; }

 private:
  class Calls;
  class Identity;
  std::unique_ptr<Calls> calls_;
  std::unique_ptr<Identity> identity_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace corbd::test
