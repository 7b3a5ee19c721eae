// Types and functions about calls and sockets for other rooms, without gRPC's headers.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/clock.hpp"
#include "corbd/core/result.hpp"

namespace corbd::rpc {

/// A call that ended. `grpc_code`: value of grpc::StatusCode.
struct Ended {
  std::string_view method;
  int grpc_code = 0;
  duration took{};
};

/// Succeeds if unix:///path/to.sock takes a connection; unavailable if nobody listens, or if too many wait there. Never
/// waits. Each call adds a connection to that queue, so do not make it once for each request of a client.
result<> answers(const std::string& endpoint);

}  // namespace corbd::rpc
