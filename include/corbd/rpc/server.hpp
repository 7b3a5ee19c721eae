// A gRPC server on a unix socket, and the bridge from gRPC's callbacks to tasks on the control thread. Service methods
// only build a call and return. A caller that cancels or runs out of time ends only its own wait.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/rpc/calls.hpp"

namespace corbd::rpc {

struct Config {
  std::string endpoint;         ///< unix:///path/to.sock
  std::size_t max_calls = 512;  ///< limit of calls in flight; more are refused with RESOURCE_EXHAUSTED
  int max_message_bytes = 1 << 20;
  std::string log_as = "csi.call";         ///< name of the log line at a call's end
  log::Level log_good = log::Level::info;  ///< level of a call that succeeds; others are warnings
  /// Called on the control thread at the end of every unary() call, refused ones too. Must outlive the control thread's
  /// work.
  std::function<void(const Ended&)> on_ended;
};

class Listener;

/// A gRPC server on one socket. Control thread only, except where noted; stop() before it is destroyed.
class Server {
 public:
  Server(executor control, Clock& clock, Config config);
  ~Server();

  /// Listens. The folder has mode 0750, the socket 0600. Replaces a socket on which nobody answers. in_use: somebody
  /// answers. `listening`: a socket that another process has listened on and released; then the path is not touched.
  result<> start(const std::vector<grpc::Service*>& services, Fd listening = {});
  /// Stops accepting connections. They wait in the socket for its next owner. Invalid: it does not listen.
  Fd release();
  /// Accepts connections again, with the socket that it released.
  result<> adopt(Fd socket);
  /// Returns the listening socket; -1: there is none.
  int socket() const;
  /// Returns the path of its socket.
  std::string path() const;
  /// Takes no new calls, waits for those in flight, and cancels the rest at half the time.
  task<> stop(Until until);

  /// Whether a call may be refused because too many are in flight.
  enum class Bound { max_calls, none };
  /// Makes the return value of a service method. `work` runs as a task on the control thread; its Until ends with the
  /// caller's deadline or cancellation. `subject` names the object in the log (a volume ID).
  grpc::ServerUnaryReactor* unary(grpc::CallbackServerContext* context, std::string method, std::string subject,
                                  std::function<task<result<>>(Until)> work, Bound bound = Bound::max_calls);
  /// Answers at once, on gRPC's own thread.
  static grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const grpc::Status& status);

  /// Returns the number of unfinished unary() calls. Any thread.
  std::size_t in_flight() const { return in_flight_.load(); }

 private:
  class Call;
  executor control_;
  Clock& clock_;
  Config config_;
  Gate gate_;
  std::atomic<std::size_t> in_flight_{0};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;
};

/// Returns the caller on the unix socket: "uid 0, pid 4711" (pid 0: from another PID namespace); empty if unknown. Only
/// while the call has not ended.
std::string peer_of(const grpc::ServerContextBase& context);

/// Makes the status for a caller, with its text as valid UTF-8.
grpc::Status to_status(const Error& error);

}  // namespace corbd::rpc
