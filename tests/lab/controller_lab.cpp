// Tests the test provisioner's own calls, which the conformance suite relies on.
#include <grpcpp/client_context.h>

#include "csi/v1/controller.grpc.pb.h"
#include "rbd_lab.hpp"
#include "support/controller.hpp"

using namespace corbd;
using namespace corbd::lab;
namespace v1 = ::csi::v1;

namespace {

struct Pair {
  Admin admin;
  test::Controller controller{admin.cluster, "lab", pool_name()};
  std::unique_ptr<v1::Controller::Stub> stub = v1::Controller::NewStub(controller.server().InProcessChannel({}));

  grpc::Status create(std::int64_t bytes, v1::Volume& made) {
    v1::CreateVolumeRequest request;
    request.set_name("pvc-conformance");
    request.add_volume_capabilities()->mutable_block();
    request.mutable_capacity_range()->set_required_bytes(bytes);
    grpc::ClientContext context;
    v1::CreateVolumeResponse response;
    const auto status = stub->CreateVolume(&context, request, &response);
    made = response.volume();
    return status;
  }
  grpc::Status remove(const std::string& id) {
    v1::DeleteVolumeRequest request;
    request.set_volume_id(id);
    grpc::ClientContext context;
    v1::DeleteVolumeResponse response;
    return stub->DeleteVolume(&context, request, &response);
  }
};

}  // namespace

TEST_CASE("the test provisioner makes a volume once, finds it again, and removes it as often as it is asked") {
  Pair pair;
  v1::Volume first, again, other;
  REQUIRE(pair.create(64 << 20, first).ok());
  REQUIRE(pair.create(64 << 20, again).ok());
  CHECK(again.volume_id() == first.volume_id());
  CHECK(pair.create(128 << 20, other).error_code() == grpc::StatusCode::ALREADY_EXISTS);
  Agent agent;
  const std::string image = first.volume_context().at("imageName");
  CHECK(agent.run(agent.clusters->resolve(access(), {pool_name(), "", image}, agent.in(20s))));
  CHECK(pair.remove(first.volume_id()).ok());
  CHECK(pair.remove(first.volume_id()).ok());
  CHECK_FALSE(agent.run(agent.clusters->resolve(access(), {pool_name(), "", image}, agent.in(20s))));
}
