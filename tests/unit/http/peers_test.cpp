// Whose connections the server keeps when there are too many.
#include "loopback.hpp"
#include "rate.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("32 idle connections of one client keep neither that client nor another from an answer") {
  Loopback scene;
  const auto held = scene.kept(32);
  auto probe = scene.client(), other = scene.client(2);
  probe.send(kGet);
  CHECK(scene.says(probe, "hello\n"));
  other.send(kGet);
  CHECK(scene.says(other, "hello\n"));
}

TEST_CASE("a peer over its connection limit loses its own connection that has waited longest for a request") {
  http::Limits limits;
  limits.peer_connections = 2;
  Loopback scene(limits);
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

TEST_CASE("a full server closes the connection that has waited longest for a request, whichever peer has it") {
  http::Limits limits;
  limits.connections = 2;
  Loopback scene(limits);
  auto first = scene.kept(1, 1), second = scene.kept(1, 2);
  scene.loop.advance(1s);
  auto third = scene.kept(1, 3);
  CHECK(scene.closes(first[0]));
  second[0].send(kGet);
  CHECK(scene.says(second[0], "hello\n"));
  CHECK(scene.server->connections() == 2);
}

TEST_CASE("a full server closes a connection with an incomplete request to make room for a new one") {
  http::Limits limits;
  limits.connections = 1;
  Loopback scene(limits);
  auto slow = scene.client(1);
  slow.send("GET / HT");
  REQUIRE(scene.comes([&] { return scene.server->connections() == 1; }));
  auto quick = scene.kept(1, 2);
  CHECK(scene.closes(slow));
}

TEST_CASE("a connection that waits for its answer is not closed, unless it leaves the answer unread for five seconds") {
  Loop loop;
  http::Config config;
  config.limits.connections = 1;
  bool asked = false;
  http::Server server(loop.control(), loop.clock, config, [&](const http::Request&) {
    asked = true;
    return http::answered({200, "a/b", std::string(32 << 20, 'x')});
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

TEST_CASE("an IPv4 client is the same peer on an IPv6 socket, and all IPv6 clients of one /64 are one peer") {
  const auto peer = [](const char* text) { return http::peer_of(asio::ip::make_address(text)); };
  CHECK(peer("::ffff:10.1.2.3") == peer("10.1.2.3"));
  CHECK_FALSE(peer("10.1.2.3") == peer("10.1.2.4"));
  CHECK(peer("2001:db8:0:1::5") == peer("2001:db8:0:1:ffff::6"));
  CHECK_FALSE(peer("2001:db8:0:1::5") == peer("2001:db8:0:2::5"));
  CHECK(peer("fe80::1%1") == peer("fe80::2"));
  CHECK_FALSE(peer("::1") == peer("127.0.0.1"));
}

TEST_CASE("a peer that asks too often waits for its turns, and keeps no other peer waiting", "[failure:211]") {
  http::Limits limits;
  limits.peer_rate = 10;
  limits.peer_burst = 3;
  Loopback scene(limits);
  const auto first = scene.kept(3);
  auto more = scene.client(), other = scene.client(2);
  more.send(kGet);
  other.send(kGet);
  REQUIRE(scene.says(other, "hello\n"));
  CHECK(scene.asked.size() == 4);
  scene.loop.advance(99ms);
  CHECK(scene.asked.size() == 4);
  scene.loop.advance(1ms);
  CHECK(scene.says(more, "hello\n"));
}

TEST_CASE("a connection that makes room while it waits for its turn is not answered") {
  http::Limits limits;
  limits.peer_burst = 1;
  limits.peer_connections = 2;
  Loopback scene(limits);
  const auto first = scene.kept(1);
  scene.loop.advance(10ms);
  auto waits = scene.client();
  waits.send(kGet);
  REQUIRE(scene.comes([&] { return scene.server->connections() == 2; }));
  auto next = scene.client(), last = scene.client();
  CHECK(scene.closes(waits));
  scene.loop.advance(1s);
  CHECK(scene.asked.size() == 1);
}

TEST_CASE("a peer that has asked for nothing for a while needs no memory") {
  http::Rate rate(10, 5);
  const time_point start{};
  for (unsigned i = 0; i < 1000; ++i) CHECK(rate.take(http::peer_of(asio::ip::make_address_v4(i)), start + i * 10ms));
  CHECK(rate.peers() < 100);
}
