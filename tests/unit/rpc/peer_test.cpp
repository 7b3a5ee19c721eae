// Which process a call comes from.
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <map>
#include <memory>

#include "corbd/rpc/server.hpp"
#include "listener.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

/// One call that reached the server, until it is answered.
class Reached final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Reached(grpc::GenericCallbackServerContext& reached) : context(reached) {}
  void OnCancel() override { cancelled.set_value(); }
  void OnDone() override { done.set_value(); }
  std::string peer() const { return rpc::peer_of(context); }
  void end() {
    Finish(grpc::Status::OK);
    REQUIRE(done.get_future().wait_for(10s) == std::future_status::ready);
  }
  grpc::GenericCallbackServerContext& context;
  std::promise<void> cancelled, done;
};

class Service final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    auto* reached = new Reached(*context);
    next.set_value(reached);
    return reached;
  }
  std::promise<Reached*> next;  ///< set before each call
};

/// A connection, and one call on it.
class Caller {
 public:
  /// `by_other`: a child process connects and ends before the call. `pid` is that of the process that connected.
  Caller(const std::string& path, bool by_other) : pid(::getpid()) {
    const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    const auto connects = [&] {
      return ::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    };
    if (by_other) {
      pid = ::fork();
      if (pid == 0) ::_exit(connects() ? 0 : 1);
      int status = 0;
      REQUIRE(::waitpid(pid, &status, 0) == pid);
      REQUIRE(status == 0);
    } else {
      REQUIRE(connects());
    }
    socket_ = Fd(::dup(connection));
    REQUIRE(::fcntl(connection, F_SETFL, O_NONBLOCK) == 0);
    stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateInsecureChannelFromFd("caller", connection));
  }
  ~Caller() {
    if (called_) ended_.get_future().wait();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  std::unique_ptr<Reached> call(Service& service) {
    service.next = {};
    auto reached = service.next.get_future();
    called_ = true;
    stub_->UnaryCall(&context_, "/service/method", {}, &request_, &response_,
                     [this](const grpc::Status&) { ended_.set_value(); });
    REQUIRE(reached.wait_for(10s) == std::future_status::ready);
    return std::unique_ptr<Reached>(reached.get());
  }
  void vanish() const { REQUIRE(::shutdown(socket_.get(), SHUT_RDWR) == 0); }
  std::string name() const { return "uid " + std::to_string(::getuid()) + ", pid " + std::to_string(pid); }
  pid_t pid;

 private:
  Fd socket_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  const grpc::Slice nothing_;
  const grpc::ByteBuffer request_{&nothing_, 1};
  grpc::ByteBuffer response_;
  std::promise<void> ended_;
  bool called_ = false;
};

struct Answering {
  test::Folder folder;
  std::string path = folder.path() + "/socket";
  Service service;
  std::unique_ptr<rpc::Listener> listener = *rpc::Listener::open(path);
  std::unique_ptr<grpc::Server> server = [this] {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&service);
    return builder.BuildAndStart();
  }();
  Answering() { listener->start(*server); }
  ~Answering() {
    listener.reset();
    server->Shutdown(std::chrono::system_clock::now() + 5s);
  }
};

}  // namespace

TEST_CASE("a call whose connection has ended names its own caller, not that of a later connection") {
  Answering node;
  Caller first(node.path, true);
  const auto call = first.call(node.service);
  CHECK(call->peer() == first.name());
  first.vanish();
  REQUIRE(call->cancelled.get_future().wait_for(10s) == std::future_status::ready);
  Caller second(node.path, false);
  const auto later = second.call(node.service);
  CHECK(later->context.peer() != call->context.peer());
  CHECK(later->peer() == second.name());
  CHECK(call->peer() == first.name());
  call->end();
  later->end();
}

TEST_CASE("a connection that reuses the descriptor number of another connection names its own caller") {
  Answering node;
  // gRPC closes a descriptor a moment later, and may take its number for itself. So any number will do.
  std::map<std::string, std::string> callers;
  bool reused = false;
  for (int tries = 0; tries < 100 && !reused; ++tries) {
    Caller next(node.path, tries % 2 == 0);
    const auto call = next.call(node.service);
    CHECK(call->peer() == next.name());
    const auto earlier = callers.find(call->context.peer());
    reused = earlier != callers.end() && earlier->second != next.name();
    callers[call->context.peer()] = next.name();
    next.vanish();
    call->end();
  }
  CHECK(reused);
}
