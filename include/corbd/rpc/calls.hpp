// What other rooms may know about calls and sockets without gRPC's headers.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/clock.hpp"
#include "corbd/core/result.hpp"

namespace corbd::rpc {

/// A call that ended. `grpc_code`: grpc::StatusCode by number.
struct Ended {
  std::string_view method;
  int grpc_code = 0;
  duration took{};
};

/// Succeeds if unix:///path/to.sock takes a connection; unavailable if nobody listens, or if too many wait there. Never
/// waits. Each call is one of those that wait, so nobody makes it once for each request of somebody else.
result<> answers(const std::string& endpoint);

}  // namespace corbd::rpc
