// Asks the agent about itself and its volumes.
#include <grpcpp/grpcpp.h>

#include <chrono>

#include "corbd/core/display.hpp"
#include "corbd/rpc/json.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

template <class Call, class Request, class Response>
grpc::Status ask(const std::string& endpoint, std::chrono::seconds within, Call call, const Request& request,
                 Response& response) {
  constexpr int many_volumes_bytes = 64 << 20;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(many_volumes_bytes);
  const auto stub =
      v1::Admin::NewStub(grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + within);
  return (stub.get()->*call)(&context, request, &response);
}

}  // namespace

std::optional<v1::GetStatusResponse> ask_status(const std::string& endpoint) {
  v1::GetStatusResponse response;
  const auto status =
      ask(endpoint, std::chrono::seconds(3), &v1::Admin::Stub::GetStatus, v1::GetStatusRequest(), response);
  return status.ok() ? std::optional(std::move(response)) : std::nullopt;
}

result<std::map<std::string, AgentVolume>> ask_volumes(const std::string& endpoint) {
  v1::ListVolumesResponse response;
  const auto status =
      ask(endpoint, std::chrono::seconds(10), &v1::Admin::Stub::ListVolumes, v1::ListVolumesRequest(), response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return Error{errc::unavailable,
                 "asking the agent for its volumes: no answer within 10 s: the agent's log says what it waits for"};
  if (!status.ok())
    return Error{errc::unavailable, "asking the agent for its volumes: " + for_terminal(status.error_message())};
  std::map<std::string, AgentVolume> all;
  for (const auto& volume : response.volumes()) {
    auto& made = all[volume.id()];
    made.state = rpc::enum_word(*v1::Health_descriptor(), volume.health());
    made.cache_lost = volume.cache_lost();
    if (volume.has_caches_before_flush()) made.caches_before_flush = volume.caches_before_flush();
  }
  return all;
}

}  // namespace corbd::doctor
