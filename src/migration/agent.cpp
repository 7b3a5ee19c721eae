// What the agent says of the volumes that it has.
#include <grpcpp/grpcpp.h>

#include <chrono>

#include "corbd/core/display.hpp"
#include "corbd/rpc/json.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "inputs.hpp"

namespace corbd::migration {

result<std::map<std::string, std::string>> ask_agent(const std::string& endpoint) {
  constexpr std::chrono::seconds within{10};
  constexpr int many_volumes_bytes = 64 << 20;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(many_volumes_bytes);
  const auto stub =
      v1::Admin::NewStub(grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + within);
  v1::ListVolumesResponse response;
  const auto status = stub->ListVolumes(&context, v1::ListVolumesRequest(), &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return Error{errc::unavailable,
                 "asking the agent for its volumes: no answer within 10 s: the agent's log says what it waits for"};
  if (!status.ok())
    return Error{errc::unavailable, "asking the agent for its volumes: " + for_terminal(status.error_message())};
  std::map<std::string, std::string> states;
  for (const auto& volume : response.volumes())
    states[volume.id()] = rpc::enum_word(*v1::Health_descriptor(), volume.health());
  return states;
}

}  // namespace corbd::migration
