// The server, and raw sockets on loopback. The clock is virtual: only a test advances it, never while bytes are in
// flight.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/http/server.hpp"
#include "support/catch.hpp"
#include "support/loop.hpp"

namespace corbd::test {

inline constexpr std::string_view kGet = "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";

class Client {
 public:
  /// Connects from 127.0.0.<host>: every address of 127.0.0.0/8 is this machine's.
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
  /// Reads the bytes that have arrived.
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

class Loopback {
 public:
  explicit Loopback(http::Limits limits = {}) {
    http::Config config;
    config.limits = limits;
    server = std::make_unique<http::Server>(loop.control(), loop.clock, config, [this](const http::Request& request) {
      asked.push_back(request.method + " " + request.target);
      return http::answered({200, "text/plain", "hello\n"});
    });
    REQUIRE(server->start());
  }
  ~Loopback() {
    if (server) loop.run(server->stop({loop.clock.now()}));
  }
  Client client(std::uint8_t host = 1) const { return Client(server->port(), host); }
  /// Clients that have each had one answer and keep their connection open.
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
  /// Runs the loop until the condition holds. The kernel may need a moment; the virtual clock stands still.
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

  Loop loop;
  std::vector<std::string> asked;
  std::unique_ptr<http::Server> server;
};

}  // namespace corbd::test
