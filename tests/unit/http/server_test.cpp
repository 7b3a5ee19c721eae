// The server with raw sockets on loopback. The clock is virtual: time passes when a test says so, never while bytes are
// under way.
#include "corbd/http/server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>

#include "corbd/core/fd.hpp"
#include "peer.hpp"
#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view kGet = "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";

class Client {
 public:
  /// Of 127.0.0.<host>: every address of 127.0.0.0/8 is this machine's.
  explicit Client(std::uint16_t port, std::uint8_t host = 1)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl((127u << 24) + host);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  void send(std::string_view text) {
    pollfd wait{fd_.get(), POLLOUT, 0};
    ::poll(&wait, 1, 10000);
    CHECK(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  /// Takes what is there.
  void take() {
    char bytes[4096];
    for (;;) {
      const auto got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      if (got > 0) said.append(bytes, static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != ENOTCONN)) closed = true;
      if (got <= 0) return;
    }
  }
  void leave() { fd_.reset(); }

  std::string said;
  bool closed = false;

 private:
  Fd fd_;
};

class Scene {
 public:
  explicit Scene(http::Limits limits = {}) {
    http::Config config;
    config.limits = limits;
    server = std::make_unique<http::Server>(loop.control(), loop.clock, config, [this](const http::Request& request) {
      asked.push_back(request.method + " " + request.target);
      return http::Response{200, "text/plain", "hello\n"};
    });
    REQUIRE(server->start());
  }
  ~Scene() {
    if (server) loop.run(server->stop({loop.clock.now()}));
  }
  Client client(std::uint8_t host = 1) const { return Client(server->port(), host); }
  /// That many, each answered once and kept.
  std::vector<Client> kept(std::size_t count, std::uint8_t host = 1) {
    std::vector<Client> all;
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(client(host));
      all.back().send(kGet);
      REQUIRE(says(all.back(), "hello\n"));
      all.back().said.clear();
    }
    return all;
  }
  /// Runs the loop until it is so; the kernel may need a moment, the virtual clock stands still.
  template <class Condition>
  bool comes(Condition condition) {
    for (int i = 0; i < 20000; ++i) {
      loop.poll();
      if (condition()) return true;
      ::poll(nullptr, 0, 1);
    }
    return false;
  }
  bool says(Client& client, std::string_view text) {
    return comes([&] {
      client.take();
      return client.said.find(text) != std::string::npos;
    });
  }
  bool closes(Client& client) {
    return comes([&] {
      client.take();
      return client.closed;
    });
  }

  test::Loop loop;
  std::vector<std::string> asked;
  std::unique_ptr<http::Server> server;
};

}  // namespace

TEST_CASE("a GET is answered with what the handler says") {
  Scene scene;
  auto client = scene.client();
  client.send(kGet);
  REQUIRE(scene.says(client, "hello\n"));
  CHECK_THAT(client.said, ContainsSubstring("HTTP/1.1 200 OK\r\n") && ContainsSubstring("Content-Length: 6\r\n"));
  CHECK(scene.asked == std::vector<std::string>{"GET /metrics?x=1"});
}

TEST_CASE("a HEAD is answered without the body, but with its length") {
  Scene scene;
  auto client = scene.client();
  client.send("HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n");
  REQUIRE(scene.closes(client));
  CHECK_THAT(client.said, ContainsSubstring("Content-Length: 6\r\n") && !ContainsSubstring("hello"));
}

TEST_CASE("a connection serves one request after another, also those sent ahead") {
  Scene scene;
  auto client = scene.client();
  client.send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n");
  REQUIRE(scene.comes([&] { return scene.asked.size() == 2; }));
  client.send("GET /3 HTTP/1.1\r\nConnection: close\r\n\r\n");
  REQUIRE(scene.closes(client));
  CHECK(scene.asked == std::vector<std::string>{"GET /1", "GET /2", "GET /3"});
}

TEST_CASE("any other method is refused and the connection kept") {
  Scene scene;
  auto client = scene.client();
  client.send("DELETE / HTTP/1.1\r\n\r\n");
  REQUIRE(scene.says(client, "405 Method Not Allowed"));
  CHECK_THAT(client.said, ContainsSubstring("Allow: GET, HEAD\r\n"));
  client.send(kGet);
  CHECK(scene.says(client, "hello\n"));
}

TEST_CASE("a header beyond the limit is refused and the connection closed") {
  Scene scene;
  auto client = scene.client();
  client.send("GET / HTTP/1.1\r\nX: " + std::string(16 << 10, 'x') + "\r\n\r\n");
  REQUIRE(scene.says(client, "431 Request Header Fields Too Large"));
  CHECK(scene.closes(client));
  CHECK(scene.asked.empty());
}

TEST_CASE("a body beyond the limit is refused and the connection closed") {
  Scene scene;
  auto client = scene.client();
  client.send("GET / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + std::string(5000, 'x'));
  REQUIRE(scene.says(client, "413 Payload Too Large"));
  CHECK(scene.closes(client));
}

TEST_CASE("bytes that are no HTTP are answered with 400 and reach nobody") {
  Scene scene;
  auto client = scene.client();
  client.send(GENERATE(as<std::string>(), "\x16\x03\x01\x02\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                       "\xff\xfe\r\n\r\n"));
  REQUIRE(scene.says(client, "400 Bad Request"));
  CHECK(scene.closes(client));
  CHECK(scene.asked.empty());
}

TEST_CASE("a header that comes byte by byte ends with the header's time, however busy it is") {
  Scene scene;
  auto client = scene.client();
  REQUIRE(scene.comes([&] { return scene.server->connections() == 1; }));
  for (int second = 0; second < 4; ++second) {
    client.send("G");
    scene.loop.advance(1s);
  }
  CHECK(scene.server->connections() == 1);
  scene.loop.advance(1s);
  CHECK(scene.closes(client));
  CHECK(scene.server->connections() == 0);
}

TEST_CASE("a connection that says nothing ends: a new one with the header's time, a used one with the idle time") {
  Scene scene;
  auto used = scene.client();
  used.send(kGet);
  REQUIRE(scene.says(used, "hello\n"));
  auto fresh = scene.client();
  REQUIRE(scene.comes([&] { return scene.server->connections() == 2; }));
  scene.loop.advance(5s);
  CHECK(scene.closes(fresh));
  CHECK(scene.server->connections() == 1);
  scene.loop.advance(25s);
  CHECK(scene.closes(used));
}

TEST_CASE("a client that does not take its answer ends with the idle time") {
  test::Loop loop;
  http::Server server(loop.control(), loop.clock, {},
                      [](const http::Request&) { return http::Response{200, "a/b", std::string(32 << 20, 'x')}; });
  REQUIRE(server.start());
  Client client(server.port());
  client.send(kGet);
  for (int i = 0; i < 300; ++i) {
    loop.poll();
    ::poll(nullptr, 0, 1);
  }
  CHECK(server.connections() == 1);
  loop.advance(30s);
  CHECK(server.connections() == 0);
  loop.run(server.stop({}));
}

TEST_CASE("32 idle connections of one client keep nobody from being answered, that client neither") {
  Scene scene;
  const auto held = scene.kept(32);
  auto probe = scene.client(), other = scene.client(2);
  probe.send(kGet);
  CHECK(scene.says(probe, "hello\n"));
  other.send(kGet);
  CHECK(scene.says(other, "hello\n"));
}

TEST_CASE(
    "one peer has its share of the connections: one more takes the place of its own that waits longest for its "
    "client") {
  http::Limits limits;
  limits.peer_connections = 2;
  Scene scene(limits);
  auto other = scene.kept(1, 2);
  scene.loop.advance(1s);
  auto held = scene.kept(2);
  scene.loop.advance(1s);
  held[0].send(kGet);
  REQUIRE(scene.says(held[0], "hello\n"));
  scene.loop.advance(1s);
  auto third = scene.kept(1);
  CHECK(scene.closes(held[1]));
  CHECK(scene.server->connections() == 3);
  for (auto* kept : {&held[0], &other[0], &third[0]}) {
    kept->send(kGet);
    CHECK(scene.says(*kept, "hello\n"));
  }
}

TEST_CASE("where the server is full, the connection that waits longest for its client makes room, whosoever it is") {
  http::Limits limits;
  limits.connections = 2;
  Scene scene(limits);
  auto first = scene.kept(1, 1), second = scene.kept(1, 2);
  scene.loop.advance(1s);
  auto third = scene.kept(1, 3);
  CHECK(scene.closes(first[0]));
  second[0].send(kGet);
  CHECK(scene.says(second[0], "hello\n"));
  CHECK(scene.server->connections() == 2);
}

TEST_CASE("a request that comes byte by byte makes room like a connection that says nothing") {
  http::Limits limits;
  limits.connections = 1;
  Scene scene(limits);
  auto slow = scene.client(1);
  slow.send("GET / HT");
  REQUIRE(scene.comes([&] { return scene.server->connections() == 1; }));
  auto quick = scene.kept(1, 2);
  CHECK(scene.closes(slow));
}

TEST_CASE(
    "a connection that is owed an answer makes room for nobody, unless it does not take the answer for five seconds") {
  test::Loop loop;
  http::Config config;
  config.limits.connections = 1;
  bool asked = false;
  http::Server server(loop.control(), loop.clock, config, [&](const http::Request&) {
    asked = true;
    return http::Response{200, "a/b", std::string(32 << 20, 'x')};
  });
  REQUIRE(server.start());
  const auto comes = [&](auto condition) {
    for (int i = 0; i < 20000 && !condition(); ++i) {
      loop.poll();
      ::poll(nullptr, 0, 1);
    }
    return condition();
  };
  Client slow(server.port());
  slow.send(kGet);
  REQUIRE(comes([&] { return asked; }));
  Client next(server.port(), 2);
  CHECK(comes([&] {
    next.take();
    return next.closed;
  }));
  CHECK(server.connections() == 1);
  loop.advance(5s);
  Client third(server.port(), 3);
  CHECK(comes([&] {
    slow.take();
    return slow.closed;
  }));
  loop.advance(30s);
  CHECK(server.connections() == 0);
  loop.run(server.stop({}));
}

TEST_CASE(
    "an IPv4 client is the same peer where an IPv6 socket shows it, and an IPv6 client has the bound of its /64") {
  const auto peer = [](const char* text) { return http::peer_of(asio::ip::make_address(text)); };
  CHECK(peer("::ffff:10.1.2.3") == peer("10.1.2.3"));
  CHECK_FALSE(peer("10.1.2.3") == peer("10.1.2.4"));
  CHECK(peer("2001:db8:0:1::5") == peer("2001:db8:0:1:ffff::6"));
  CHECK_FALSE(peer("2001:db8:0:1::5") == peer("2001:db8:0:2::5"));
  CHECK(peer("fe80::1%1") == peer("fe80::2"));
  CHECK_FALSE(peer("::1") == peer("127.0.0.1"));
}

TEST_CASE("a client that leaves in the middle of a request costs nothing") {
  Scene scene;
  auto client = scene.client();
  client.send("GET / HT");
  REQUIRE(scene.comes([&] { return scene.server->connections() == 1; }));
  client.leave();
  CHECK(scene.comes([&] { return scene.server->connections() == 0; }));
}

TEST_CASE("stopping ends idle connections at once and answers a request that ends in time") {
  Scene scene;
  auto idle = scene.client(), open = scene.client();
  idle.send(kGet);
  REQUIRE(scene.says(idle, "hello\n"));
  open.send("GET / HTTP/1.1\r\n");
  REQUIRE(scene.comes([&] { return scene.server->connections() == 2; }));
  bool stopped = false;
  asio::co_spawn(scene.loop.io, scene.server->stop({scene.loop.clock.now() + 2s}),
                 [&](std::exception_ptr) { stopped = true; });
  CHECK(scene.closes(idle));
  CHECK_FALSE(stopped);
  open.send("\r\n");
  REQUIRE(scene.says(open, "hello\n"));
  CHECK_THAT(open.said, ContainsSubstring("Connection: close"));
  open.leave();
  CHECK(scene.comes([&] { return stopped; }));
}

TEST_CASE("stopping cuts off a request that does not end in time") {
  Scene scene;
  auto open = scene.client();
  open.send("GET / HTTP/1.1\r\n");
  REQUIRE(scene.comes([&] { return scene.server->connections() == 1; }));
  scene.loop.run(scene.server->stop({scene.loop.clock.now() + 2s}));
  CHECK(scene.closes(open));
  CHECK(scene.server->connections() == 0);
}

TEST_CASE("a port that is taken is named") {
  Scene scene;
  http::Config config;
  config.port = scene.server->port();
  http::Server second(scene.loop.control(), scene.loop.clock, config, nullptr);
  const auto started = second.start();
  REQUIRE_FALSE(started);
  CHECK(started.error().code == errc::in_use);
  CHECK_THAT(started.error().text, ContainsSubstring("127.0.0.1:" + std::to_string(config.port)));
}

TEST_CASE("an address that is none is named") {
  test::Loop loop;
  http::Config config;
  config.address = "localhost";
  http::Server server(loop.control(), loop.clock, config, nullptr);
  const auto started = server.start();
  REQUIRE_FALSE(started);
  CHECK(started.error().code == errc::invalid_argument);
  CHECK_THAT(started.error().text, ContainsSubstring("localhost"));
}
