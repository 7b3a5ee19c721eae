// Accepts connections for a gRPC server. gRPC's own listener ends for good at the first call for which the process has
// no descriptor left.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <thread>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"

namespace corbd::rpc {

class Listener {
 public:
  /// Makes a socket of mode 0600 at `path`, which is free. Connections wait in it until start().
  static result<std::unique_ptr<Listener>> open(const std::string& path);
  /// Takes over a socket on which another process listened. Connections wait in it until start().
  static result<std::unique_ptr<Listener>> adopt(Fd socket);
  /// New connections are refused from then on.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Passes every connection to the server, which must outlive this object.
  void start(grpc::Server& server);
  int socket() const { return socket_.get(); }
  /// Stops accepting. New connections wait in the socket for its next owner.
  Fd release();

 private:
  Listener(Fd socket, Fd ends) : socket_(std::move(socket)), ends_(std::move(ends)) {}
  void run(grpc::Server& server) const;
  void end();

  Fd socket_, ends_;
  std::thread thread_;
};

}  // namespace corbd::rpc
