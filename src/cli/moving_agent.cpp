// What the agent says of the volumes that it has.
#include <chrono>

#include "caller.hpp"
#include "corbd/rpc/json.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "moving.hpp"

namespace corbd::cli {

result<std::map<std::string, std::string>> ask_agent(const std::string& endpoint) {
  constexpr std::string_view scheme = "unix://";
  constexpr std::chrono::seconds limit{10};
  if (!endpoint.starts_with(scheme)) return Error{errc::invalid_argument, "'" + endpoint + "' is not a unix socket"};
  Caller<v1::Admin> asking(endpoint.substr(scheme.size()), "doctor", limit);
  v1::ListVolumesResponse response;
  const auto status = asking.call(&v1::Admin::Stub::ListVolumes, v1::ListVolumesRequest(), response, limit);
  if (!status.ok()) return Error{errc::unavailable, "asking the agent for its volumes: " + said_of(status, limit)};
  std::map<std::string, std::string> states;
  for (const auto& volume : response.volumes())
    states[volume.id()] = rpc::enum_word(*v1::Health_descriptor(), volume.health());
  return states;
}

}  // namespace corbd::cli
