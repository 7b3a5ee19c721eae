// One request and its answer on a connection.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "corbd/http/client.hpp"

namespace corbd::http {

using boost::system::error_code;

inline auto into(error_code& failed) { return asio::redirect_error(asio::use_awaitable, failed); }
inline bool is_tls(const error_code& failed) { return failed.category() == asio::error::get_ssl_category(); }

constexpr std::size_t kHeaderBytes = 64 << 10, kPieceBytes = 16 << 10;

/// Wipes what it read when it ends.
struct OpenConnection {
  explicit OpenConnection(const executor& control) : socket(std::make_shared<asio::ip::tcp::socket>(control)) {}
  ~OpenConnection() {
    buffer.clear();
    const auto all = buffer.prepare(buffer.capacity());
    wipe(std::span(static_cast<char*>(all.data()), all.size()));
  }
  OpenConnection(const OpenConnection&) = delete;
  OpenConnection& operator=(const OpenConnection&) = delete;
  /// Whether the server has sent bytes that nobody read. Then the next answer on the connection would be somebody
  /// else's.
  bool has_more();
  std::shared_ptr<asio::ip::tcp::socket> socket;
  std::optional<asio::ssl::stream<asio::ip::tcp::socket&>> tls;
  boost::beast::flat_buffer buffer{kHeaderBytes + kPieceBytes};
};

/// A request and its answer.
struct Exchange {
  Exchange() = default;
  ~Exchange() {
    wipe(request);
    wipe(reply.body);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  std::string request;    ///< all its bytes
  Sink sink;              ///< null: the body is kept
  std::size_t limit = 0;  ///< limit of a kept body
  std::chrono::milliseconds idle{};
  Reply reply;
  bool answered = false;             ///< the answer's headers have come
  bool whole = false, keep = false;  ///< the answer is complete; the connection can be reused
  bool too_long = false;
};

/// Sends the request, and reads the answer into `exchange`. `head`: limit of the time until its headers are there.
task<error_code> converse(Clock& clock, OpenConnection& connection, Exchange& exchange, std::chrono::milliseconds head,
                          Until until);

struct Bytes {
  std::string answer;
  bool fits = true;  ///< false: the answer is longer than the limit
};
/// Sends the request, and reads until `length` is satisfied.
task<error_code> converse_in_bytes(OpenConnection& connection, const std::string& request, const Client::Length& length,
                                   std::size_t limit, Bytes& bytes);

}  // namespace corbd::http
