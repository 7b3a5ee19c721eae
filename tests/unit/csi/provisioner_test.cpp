// Requests that the test provisioner refuses before it asks its cluster. CSI's public conformance suite demands the
// refusals, but cannot be run everywhere.
#include <grpcpp/client_context.h>

#include "csi/v1/controller.grpc.pb.h"
#include "support/catch.hpp"
#include "support/controller.hpp"

using namespace corbd;
namespace v1 = ::csi::v1;

namespace {

struct Provisioner {
  test::Controller controller{nullptr, "lab", "pool"};
  std::unique_ptr<v1::Controller::Stub> stub = v1::Controller::NewStub(controller.server().InProcessChannel({}));

  template <class Request, class Response>
  grpc::StatusCode code(grpc::Status (v1::Controller::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                        const Request& request) const {
    grpc::ClientContext context;
    Response response;
    return (stub.get()->*method)(&context, request, &response).error_code();
  }
};

constexpr auto kExpand = &v1::Controller::Stub::ControllerExpandVolume;
constexpr auto kValidate = &v1::Controller::Stub::ValidateVolumeCapabilities;
constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT, kNotFound = grpc::StatusCode::NOT_FOUND;

}  // namespace

TEST_CASE("the test provisioner refuses an expansion without a volume ID, without a size, or of an unknown volume") {
  const Provisioner provisioner;
  v1::ControllerExpandVolumeRequest request;
  request.mutable_capacity_range()->set_required_bytes(1 << 30);
  CHECK(provisioner.code(kExpand, request) == kInvalid);
  request.set_volume_id("nobody's");
  CHECK(provisioner.code(kExpand, request) == kNotFound);
  request.clear_capacity_range();
  CHECK(provisioner.code(kExpand, request) == kInvalid);
}

TEST_CASE(
    "the test provisioner refuses a validation without a volume ID, without capabilities, or of an unknown volume") {
  const Provisioner provisioner;
  v1::ValidateVolumeCapabilitiesRequest request;
  request.add_volume_capabilities()->mutable_block();
  CHECK(provisioner.code(kValidate, request) == kInvalid);
  request.set_volume_id("nobody's");
  CHECK(provisioner.code(kValidate, request) == kNotFound);
  request.clear_volume_capabilities();
  CHECK(provisioner.code(kValidate, request) == kInvalid);
}
