// Which answer a request gets, and what the client keeps of both.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "corbd/core/fd.hpp"
#include "support/api_server.hpp"
#include "support/helpers.hpp"
#include "support/memory_scan.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

struct Asker {
  explicit Asker(std::uint16_t port) {
    http::Peer peer;
    peer.host = "127.0.0.1";
    peer.port = port;
    peer.tls = false;
    client = std::make_unique<http::Client>(io.get_executor(), *clock, pool, peer);
  }
  result<http::Reply> ask(http::Message message) {
    return Started<result<http::Reply>>(io, client->call(std::move(message), {clock->now() + 20s})).get();
  }
  result<http::Reply> ask(const std::string& target) {
    http::Message message;
    message.target = target;
    message.limit = 100;
    return ask(std::move(message));
  }
  asio::io_context io;
  std::unique_ptr<Clock> clock = make_real_clock(io.get_executor());
  BlockingPool pool{io.get_executor(), *clock, 1};
  std::unique_ptr<http::Client> client;
};

}  // namespace

TEST_CASE("answers that only announce the answer are passed over, and each request gets its own", "[failure:210]") {
  ApiServer server([](const ApiServer::Request& request, ApiServer::Peer& peer) {
    peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n");
    peer.answer(200, request.target);
  });
  Asker asker(server.port());
  for (const char* target : {"/first", "/second", "/third"}) {
    const auto reply = asker.ask(target);
    REQUIRE(reply);
    CHECK(reply->status == 200);
    CHECK(reply->body == target);
  }
  CHECK(server.requests().back().connection == 1);
}

TEST_CASE("a server that announces its answer for ever is refused") {
  ApiServer server([](const ApiServer::Request&, ApiServer::Peer& peer) {
    for (int i = 0; i < 100; ++i) peer.send("HTTP/1.1 102 Processing\r\n\r\n");
    peer.hang();
  });
  CHECK(Asker(server.port()).ask("/").error().code == errc::io);
}

TEST_CASE("a connection on which the server says more than it was asked is not used again", "[failure:210]") {
  ApiServer server([](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.connection > 1) return peer.answer(200, request.target);
    peer.send(
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n/first"
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong");
    peer.hang();
  });
  Asker asker(server.port());
  CHECK(asker.ask("/first").value().body == "/first");
  CHECK(asker.ask("/second").value().body == "/second");
}

TEST_CASE("of a refusal the beginning is kept, up to the limit of the answer") {
  ApiServer server([](const ApiServer::Request&, ApiServer::Peer& peer) { peer.answer(403, std::string(2000, 'x')); });
  const auto reply = Asker(server.port()).ask("/");
  REQUIRE(reply);
  CHECK(reply->body == std::string(100, 'x'));
}

namespace {

/// In another process, so that what it reads and says is not in this one's memory.
class ServerElsewhere {
 public:
  explicit ServerElsewhere(const std::string& turned_answer)
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), 1) == 0);
    socklen_t length = sizeof address;
    REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    port = ntohs(address.sin_port);
    pid_ = ::fork();
    if (pid_ == 0) answer(turned_answer);
  }
  ~ServerElsewhere() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::uint16_t port = 0;

 private:
  [[noreturn]] void answer(const std::string& turned_answer) const {
    const int peer = ::accept(listener_.get(), nullptr, nullptr);
    char asked[4096];
    for (std::string so_far; so_far.find("the end") == so_far.npos;) {
      const auto got = ::read(peer, asked, sizeof asked);
      if (got <= 0) ::_exit(1);
      so_far.append(asked, static_cast<std::size_t>(got));
    }
    const std::string said = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(turned_answer.size()) + "\r\n\r\n" +
                             turned(turned_answer);
    static_cast<void>(::write(peer, said.data(), said.size()));
    ::_exit(0);
  }
  Fd listener_;
  pid_t pid_ = -1;
};

}  // namespace

TEST_CASE("a token, a key and an answer are nowhere in memory once the call has ended and its answer is wiped") {
  // Each is one long text that nothing else has.
  const std::string token = turned("token-") + std::string(40, static_cast<char>(~'t')),
                    key = turned("key-") + std::string(40, static_cast<char>(~'k')),
                    answer = turned("answer-") + std::string(40, static_cast<char>(~'a'));
  const ServerElsewhere server(answer);
  {
    Asker asker(server.port);
    http::Message message;
    message.method = "PUT";
    message.target = "/v1/secret";
    message.bearer = Secret(turned(token));
    message.body.reserve(1000);
    for (const char c : key) message.body += static_cast<char>(~c);
    message.body += " the end";
    CHECK(is_in_memory(token));
    CHECK(is_in_memory(key));
    auto reply = asker.ask(std::move(message));
    REQUIRE(reply);
    CHECK(reply->status == 200);
    CHECK(is_in_memory(answer));
    wipe(reply->body);
  }
  CHECK_FALSE(is_in_memory(token));
  CHECK_FALSE(is_in_memory(key));
  CHECK_FALSE(is_in_memory(answer));
}
