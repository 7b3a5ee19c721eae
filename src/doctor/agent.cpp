// What the agent says of itself, for the doctor.
#include <grpcpp/grpcpp.h>

#include "corbd/v1/admin.grpc.pb.h"
#include "inputs.hpp"

namespace corbd::doctor {

std::optional<v1::GetStatusResponse> ask_status(const std::string& endpoint) {
  constexpr std::chrono::seconds within{3};
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + within);
  v1::GetStatusResponse response;
  const auto stub = v1::Admin::NewStub(grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials()));
  if (!stub->GetStatus(&context, v1::GetStatusRequest(), &response).ok()) return std::nullopt;
  return response;
}

}  // namespace corbd::doctor
