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
  std::size_t max_calls = 512;  ///< in flight; more are refused with RESOURCE_EXHAUSTED
  int max_message_bytes = 1 << 20;
  std::string log_as = "csi.call";         ///< the log line of a call's end
  log::Level log_good = log::Level::info;  ///< for a call that ended well; for others it is warning
  /// Called on the control thread at the end of every unary() call, refused ones too. Must outlive the control thread's
  /// work.
  std::function<void(const Ended&)> on_ended;
};

class Listener;

class Server {
 public:
  Server(executor control, Clock& clock, Config config);
  ~Server();

  /// Listens. The folder has mode 0750, the socket 0600. Replaces a socket on which nobody answers. in_use when
  /// somebody answers. `listening`: a socket that another process has listened on and released; then the path is not
  /// touched.
  result<> start(const std::vector<grpc::Service*>& services, Fd listening = {});
  /// Accepts no more connections. They wait in the socket for whoever goes on with it. Invalid: it does not listen.
  Fd release();
  /// Accepts connections again, with the socket that it released.
  result<> go_on(Fd socket);
  /// On which it listens; -1: on none.
  int socket() const;
  /// Of its socket.
  std::string path() const;
  /// Takes no new calls, waits for those in flight, cancels what is left at half the time.
  task<> stop(Until until);

  /// Whether a call may be refused because too many are in flight.
  enum class Bound { max_calls, none };
  /// What a service method returns. `work` runs as a task on the control thread; its Until ends with the caller's
  /// deadline or cancellation. `subject` names the object in the log (a volume ID).
  grpc::ServerUnaryReactor* unary(grpc::CallbackServerContext* context, std::string method, std::string subject,
                                  std::function<task<result<>>(Until)> work, Bound bound = Bound::max_calls);
  /// A method that answers at once, on gRPC's own thread.
  static grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const grpc::Status& status);

  /// The number of unary() calls that have not ended. Any thread.
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

/// The caller on the unix socket: "uid 0, pid 4711" (pid 0: from another PID namespace); empty if not known. Only while
/// the call has not ended.
std::string peer_of(const grpc::ServerContextBase& context);

/// The status a caller sees; the text is made valid UTF-8.
grpc::Status to_status(const Error& error);

}  // namespace corbd::rpc
