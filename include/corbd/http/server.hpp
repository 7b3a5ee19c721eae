// A small HTTP/1.1 server for metrics and health: GET and HEAD, no TLS, no state. It shares the control thread with
// everything else, so the number of connections, the bytes and time of each, and the requests of each peer are bounded.
// A client that holds its connections keeps nobody else out. When there is no room for one more, the connection that
// the server has waited for longest ends, unless the server owes it an answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"

namespace corbd::http {

struct Request {
  std::string method;  ///< "GET" or "HEAD"; the server leaves out the body of an answer to HEAD
  std::string target;  ///< as sent: path and query
};

struct Response {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// Makes an answer. Never blocks, never throws. Control thread. A client that leaves does not end it.
using Handler = std::function<task<Response>(Request)>;
/// Wraps an answer for a handler that has it at once.
task<Response> answered(Response response);

struct Limits {
  std::chrono::milliseconds header{
      5000};  ///< from a request's first byte, or a connection's start, to the last byte of its header and body
  std::chrono::milliseconds idle{30000};  ///< between two requests, and until the client has taken an answer
  std::size_t connections = 32;           ///< limit over all peers
  std::size_t peer_connections =
      8;  ///< for one peer (peer.hpp). Behind a NAT such as kube-proxy's, many clients may be one peer
  std::size_t peer_rate = 10;          ///< requests of one peer in a second; one beyond them waits for its turn
  std::size_t peer_burst = 50;         ///< for a peer that has sent no request for a while
  std::size_t header_bytes = 8 << 10;  ///< more is answered with 431
  std::size_t body_bytes = 1 << 10;    ///< more is answered with 413
};

struct Config {
  std::string address = "127.0.0.1";  ///< IPv4 or IPv6, no name
  std::uint16_t port = 0;             ///< 0: any free port
  Limits limits{};
};

/// Control thread only; stop() before it is destroyed.
class Server {
 public:
  Server(executor control, Clock& clock, Config config, Handler handler);
  ~Server();

  /// in_use names address and port. invalid_argument: not an address. A failed call may be repeated.
  result<> start();
  /// Stops listening and ends idle connections. Lets requests under way end until the given time, and cuts off the
  /// rest.
  task<> stop(Until until);

  std::uint16_t port() const;  ///< the listening port
  std::size_t connections() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::http
