// Calls a service of the agent's admin socket.
#pragma once

#include <grpcpp/grpcpp.h>

#include <boost/json/serialize.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "admin_socket.hpp"
#include "corbd/core/display.hpp"
#include "corbd/rpc/json.hpp"

namespace corbd::cli {

inline std::string error_text(const grpc::Status& status, std::chrono::seconds limit) {
  if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) return for_terminal(status.error_message());
  return "no answer within " + std::to_string(limit.count()) +
         " s: the agent's log says what it waits for; a longer --timeout waits longer";
}

/// Whether the agent ended before or during the call.
inline bool agent_left(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::CANCELLED;
}

template <class Service>
class Caller {
 public:
  using Stub = typename Service::Stub;
  explicit Caller(std::string socket) : socket_(std::move(socket)), stub_(connect(socket_)) {}

  template <class Request, class Response>
  grpc::Status call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response, std::chrono::seconds limit) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return (stub_.get()->*method)(&context, request, &response);
  }
  /// Waits without end, but always pauses.
  void wait_for_agent() {
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    } while (!look_for_agent(socket_));
    stub_ = connect(socket_);
  }

 private:
  static std::unique_ptr<Stub> connect(const std::string& socket) {
    constexpr int many_volumes_bytes = 64 << 20;
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(many_volumes_bytes);
    // Without this, a new channel would inherit the old one's backoff.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return Service::NewStub(
        grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(), arguments));
  }
  const std::string socket_;
  std::unique_ptr<Stub> stub_;
};

/// Returns false when nobody reads any more.
inline bool print(const std::string& text) { return static_cast<bool>(std::cout << text << std::flush); }
inline bool print(const boost::json::object& line) { return print(boost::json::serialize(rpc::document(line)) + "\n"); }

}  // namespace corbd::cli
