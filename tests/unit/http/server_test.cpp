// What the server answers, what it refuses, and when it closes a connection.
#include "loopback.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("a GET is answered with what the handler says") {
  Loopback scene;
  auto client = scene.client();
  client.send(kGet);
  REQUIRE(scene.says(client, "hello\n"));
  CHECK_THAT(client.said, ContainsSubstring("HTTP/1.1 200 OK\r\n") && ContainsSubstring("Content-Length: 6\r\n"));
  CHECK(scene.asked == std::vector<std::string>{"GET /metrics?x=1"});
}

TEST_CASE("a HEAD is answered without the body, but with its length") {
  Loopback scene;
  auto client = scene.client();
  client.send("HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n");
  REQUIRE(scene.closes(client));
  CHECK_THAT(client.said, ContainsSubstring("Content-Length: 6\r\n") && !ContainsSubstring("hello"));
}

TEST_CASE("a connection serves one request after another, pipelined requests included") {
  Loopback scene;
  auto client = scene.client();
  client.send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n");
  REQUIRE(scene.comes([&] { return scene.asked.size() == 2; }));
  client.send("GET /3 HTTP/1.1\r\nConnection: close\r\n\r\n");
  REQUIRE(scene.closes(client));
  CHECK(scene.asked == std::vector<std::string>{"GET /1", "GET /2", "GET /3"});
}

TEST_CASE("any other method is refused and the connection kept") {
  Loopback scene;
  auto client = scene.client();
  client.send("DELETE / HTTP/1.1\r\n\r\n");
  REQUIRE(scene.says(client, "405 Method Not Allowed"));
  CHECK_THAT(client.said, ContainsSubstring("Allow: GET, HEAD\r\n"));
  client.send(kGet);
  CHECK(scene.says(client, "hello\n"));
}

TEST_CASE("a header beyond the limit is refused and the connection closed") {
  Loopback scene;
  auto client = scene.client();
  client.send("GET / HTTP/1.1\r\nX: " + std::string(16 << 10, 'x') + "\r\n\r\n");
  REQUIRE(scene.says(client, "431 Request Header Fields Too Large"));
  CHECK(scene.closes(client));
  CHECK(scene.asked.empty());
}

TEST_CASE("a body beyond the limit is refused and the connection closed") {
  Loopback scene;
  auto client = scene.client();
  client.send("GET / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + std::string(5000, 'x'));
  REQUIRE(scene.says(client, "413 Payload Too Large"));
  CHECK(scene.closes(client));
}

TEST_CASE("bytes that are not HTTP are answered with 400 and reach no handler") {
  Loopback scene;
  auto client = scene.client();
  client.send(GENERATE(as<std::string>(), "\x16\x03\x01\x02\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                       "\xff\xfe\r\n\r\n"));
  REQUIRE(scene.says(client, "400 Bad Request"));
  CHECK(scene.closes(client));
  CHECK(scene.asked.empty());
}

TEST_CASE("a connection that sends its header byte by byte ends at the header's time limit") {
  Loopback scene;
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

TEST_CASE("a silent connection ends after the header's limit if it is new, and after the idle limit if it was used") {
  Loopback scene;
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

TEST_CASE("a client that does not read its answer is dropped after the idle limit") {
  Loop loop;
  http::Server server(loop.control(), loop.clock, {},
                      [](const http::Request&) { return http::answered({200, "a/b", std::string(32 << 20, 'x')}); });
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

TEST_CASE("a client that leaves in the middle of a request frees its connection") {
  Loopback scene;
  auto client = scene.client();
  client.send("GET / HT");
  REQUIRE(scene.comes([&] { return scene.server->connections() == 1; }));
  client.leave();
  CHECK(scene.comes([&] { return scene.server->connections() == 0; }));
}

TEST_CASE("stopping ends idle connections at once and answers a request that ends in time") {
  Loopback scene;
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
  Loopback scene;
  auto open = scene.client();
  open.send("GET / HTTP/1.1\r\n");
  REQUIRE(scene.comes([&] { return scene.server->connections() == 1; }));
  scene.loop.run(scene.server->stop({scene.loop.clock.now() + 2s}));
  CHECK(scene.closes(open));
  CHECK(scene.server->connections() == 0);
}

TEST_CASE("the error for a port in use names it") {
  Loopback scene;
  http::Config config;
  config.port = scene.server->port();
  http::Server second(scene.loop.control(), scene.loop.clock, config, nullptr);
  const auto started = second.start();
  REQUIRE_FALSE(started);
  CHECK(started.error().code == errc::in_use);
  CHECK_THAT(started.error().text, ContainsSubstring("127.0.0.1:" + std::to_string(config.port)));
}

TEST_CASE("the error for an invalid address names it") {
  Loop loop;
  http::Config config;
  config.address = "localhost";
  http::Server server(loop.control(), loop.clock, config, nullptr);
  const auto started = server.start();
  REQUIRE_FALSE(started);
  CHECK(started.error().code == errc::invalid_argument);
  CHECK_THAT(started.error().text, ContainsSubstring("localhost"));
}
