#include "corbd/rpc/server.hpp"

#include <grpc/support/log.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "corbd/core/log.hpp"
#include "corbd/rpc/utf8.hpp"
#include "listener.hpp"
#include "socket.hpp"

namespace corbd::rpc {
namespace {

/// Writes gRPC's own messages as lines of our log.
void log_grpc(gpr_log_func_args* said) {
  const auto level = said->severity == GPR_LOG_SEVERITY_ERROR ? log::Level::error : log::Level::debug;
  log::write(level, "grpc", {{"text", said->message}});
}

/// A call ends so long before its caller's deadline, or by a tenth of its time if that is less. After the deadline gRPC
/// drops the answer, and the caller would not learn why it waited.
constexpr std::chrono::milliseconds kAnswersBefore{500};

}  // namespace

grpc::Status to_status(const Error& error) {
  return {static_cast<grpc::StatusCode>(grpc_code(error.code)), valid_utf8(error.text)};
}

// gRPC calls a connection that it was given "fd:<number>" (grpc_server_add_channel_from_fd). The number is this
// connection's as long as one of its calls exists: each call's stream refers to the transport, and only the transport's
// destructor closes the descriptor (gRPC 1.51, chttp2_transport.cc). Later versions close it sooner; see peer_test.cpp.
std::string peer_of(const grpc::ServerContextBase& context) {
  constexpr std::string_view prefix = "fd:";
  const std::string peer = context.peer();
  int connection = -1;
  const char* end = peer.data() + peer.size();
  if (!peer.starts_with(prefix) || std::from_chars(peer.data() + prefix.size(), end, connection).ptr != end) return {};
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return {};
  return "uid " + std::to_string(who.uid) + ", pid " + std::to_string(who.pid);
}

/// A call, from its method to OnDone. Everything except the callbacks' posts happens on the control thread, its end
/// too.
class Server::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(Server& server, grpc::CallbackServerContext* context, std::string method, std::string subject,
       std::function<task<result<>>(Until)> work)
      : server_(server),
        deadline_(context->deadline()),
        method_(std::move(method)),
        subject_(std::move(subject)),
        work_(std::move(work)) {}

  void begin() {
    asio::post(server_.control_, [this] {
      started_ = server_.clock_.now();
      if (!server_.gate_.spawn(run(*this)))
        finish(Error{errc::unavailable, "the agent is stopping: repeat when it is back"});
    });
  }
  void OnCancel() override {
    asio::post(server_.control_, [this] { scope_.cancel(); });
  }
  void OnDone() override {
    server_.in_flight_.fetch_sub(1);
    asio::post(server_.control_, [this] { delete this; });
  }

 private:
  static task<> run(Call& call) {
    const auto outcome = co_await call.work_(call.until());
    call.finish(outcome);
  }

  Until until() {
    Until until;
    until.scope = &scope_;
    using namespace std::chrono;
    const auto left = duration_cast<corbd::duration>(deadline_ - system_clock::now());
    if (left < hours(24 * 365))
      until.deadline = server_.clock_.now() + left - std::min<corbd::duration>(kAnswersBefore, left / 10);
    return until;
  }

  /// Last access to this object: gRPC may call OnDone before Finish returns.
  void finish(const result<>& outcome) {
    const auto code = outcome ? errc::ok : outcome.error().code;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(server_.clock_.now() - started_).count();
    const auto level = outcome ? server_.config_.log_good : log::Level::warning;
    log::write(level, server_.config_.log_as,
               {{"method", method_},
                {"volume", valid_utf8(subject_)},
                {"code", name(code)},
                {"ms", took},
                {"error", outcome ? std::string() : valid_utf8(outcome.error().text)}});
    if (server_.config_.on_ended) server_.config_.on_ended({method_, grpc_code(code), server_.clock_.now() - started_});
    Finish(outcome ? grpc::Status::OK : to_status(outcome.error()));
  }

  Server& server_;
  const std::chrono::system_clock::time_point deadline_;
  const std::string method_, subject_;
  const std::function<task<result<>>(Until)> work_;
  CancelScope scope_;
  time_point started_{};
};

Server::Server(executor control, Clock& clock, Config config)
    : control_(control), clock_(clock), config_(std::move(config)), gate_(control, clock) {}

Server::~Server() = default;

result<> Server::start(const std::vector<grpc::Service*>& services, Fd listening) {
  auto path = socket_path(config_.endpoint);
  if (!path) return path.error();
  if (!listening)
    if (auto ready = prepare_socket(*path); !ready) return ready;
  ::gpr_set_log_function(&log_grpc);
  auto listener = listening ? Listener::adopt(std::move(listening)) : Listener::open(*path);
  if (!listener) return listener.error();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(config_.max_message_bytes);
  for (auto* service : services) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return Error{errc::internal, "gRPC made no server for " + *path};
  listener_ = std::move(*listener);
  listener_->start(*server_);
  return {};
}

Fd Server::release() { return listener_ ? listener_->release() : Fd(); }

result<> Server::adopt(Fd socket) {
  auto listener = Listener::adopt(std::move(socket));
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  listener_->start(*server_);
  return {};
}

std::string Server::path() const {
  const auto path = socket_path(config_.endpoint);
  return path ? *path : std::string();
}

int Server::socket() const { return listener_ ? listener_->socket() : -1; }

task<> Server::stop(Until until) {
  if (server_ == nullptr) co_return;
  listener_.reset();
  using namespace std::chrono;
  const auto left =
      until.deadline == time_point::max() ? seconds(10) : duration_cast<milliseconds>(until.deadline - clock_.now());
  Promise<bool> ended(control_, clock_);
  // Shutdown blocks until every call has ended. At half the time it cancels what still waits, so that the end fits into
  // the other half.
  std::thread shutdown([server = server_.get(), ended, by = system_clock::now() + left / 2] {
    server->Shutdown(by);
    ended.set(true);
  });
  shutdown.detach();
  co_await gate_.close(until);
  co_await ended.future().get(until, "the gRPC server's end");
}

grpc::ServerUnaryReactor* Server::unary(grpc::CallbackServerContext* context, std::string method, std::string subject,
                                        std::function<task<result<>>(Until)> work, Bound bound) {
  if (in_flight_.fetch_add(1) >= config_.max_calls && bound == Bound::max_calls) {
    in_flight_.fetch_sub(1);
    const Error full{errc::exhausted, std::to_string(config_.max_calls) + " calls are in flight already: repeat later"};
    if (config_.on_ended)
      asio::post(control_,
                 [tell = config_.on_ended, method] { tell({method, grpc_code(errc::exhausted), duration::zero()}); });
    return answer(context, to_status(full));
  }
  auto* call =
      new Call(*this, context, std::move(method), std::move(subject), std::move(work));  // deletes itself after OnDone
  call->begin();
  return call;
}

grpc::ServerUnaryReactor* Server::answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace corbd::rpc
