#include "corbd/http/server.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <sstream>

#include "corbd/core/fd.hpp"
#include "corbd/core/gate.hpp"
#include "rate.hpp"

namespace corbd::http {
namespace {

namespace wire = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Parser = wire::request_parser<wire::string_body>;
using Answer = wire::response<wire::string_body>;

constexpr std::chrono::seconds kReadsWithin{5};    // limit for reading an answer, while others wait for a connection
constexpr std::chrono::seconds kNoDescriptors{1};  // pause in accepting when the process has no descriptor left
constexpr std::size_t kDrained = 64 << 10;         // bytes read from a refused client, so that it sees why

/// Makes an answer's bytes as one string. Beast's own writing in pieces would be a fifth of this room's compile time.
std::string wire_text(const Answer& answer, bool header_only) {
  std::ostringstream header;
  header << answer.base();
  return header.str() + (header_only ? std::string() : answer.body());
}

struct Connection {
  Connection(const executor& control, const Limits& limits, Peer of, time_point now)
      : socket(control), buffer(limits.header_bytes + limits.body_bytes), peer(std::move(of)), since(now) {}
  void cut() {
    error_code ignored;
    socket.close(ignored);
  }
  tcp::socket socket;
  boost::beast::flat_buffer buffer;
  const Peer peer;
  time_point since;         ///< since when the server waits for its client: its start, or the end of its last answer
  bool answering = false;   ///< must not make room for another
  bool evicted = false;     ///< made room, and its coroutine is about to end
  bool idle = false;        ///< has no request under way, so stopping does not wait for it
  std::uint64_t watch = 0;  ///< number of the newest Cutoff
};

/// Closes the socket when the time is up. A wait for it then ends with an error, which is a value.
class Cutoff {
 public:
  Cutoff(Clock& clock, const std::shared_ptr<Connection>& connection, duration after)
      : clock_(clock),
        connection_(*connection),
        timer_(clock.schedule(clock.now() + after, [weak = std::weak_ptr(connection), watch = ++connection->watch] {
          // This handler may have been posted before it was cancelled.
          const auto alive = weak.lock();
          if (alive && alive->watch == watch) alive->cut();
        })) {}
  ~Cutoff() {
    ++connection_.watch;
    clock_.cancel(timer_);
  }
  Cutoff(const Cutoff&) = delete;
  Cutoff& operator=(const Cutoff&) = delete;

 private:
  Clock& clock_;
  Connection& connection_;
  Clock::TimerId timer_;
};

std::string text_of(const tcp::endpoint& endpoint) {
  std::ostringstream out;
  out << endpoint;
  return out.str();
}

result<Fd> listen_on(const tcp::endpoint& endpoint) {
  const std::string where = text_of(endpoint);
  Fd fd(::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error{errc::exhausted, "making a socket for " + where + ": " + std::strerror(errno)};
  // Allows a port whose last connections the kernel has not forgotten yet.
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
      ::listen(fd.get(), SOMAXCONN) == 0)
    return fd;
  if (errno == EADDRINUSE)
    return Error{errc::in_use,
                 where + " is taken by another process: choose another port, or find that process with `ss -ltnp`"};
  return Error{errc::unavailable, "listening on " + where + ": " + std::strerror(errno)};
}

/// Returns the status for a request that could not be read. Nothing if the client is gone or too slow.
std::optional<wire::status> refusal(const error_code& failed) {
  if (failed.category() != wire::make_error_code(wire::error::end_of_stream).category()) return std::nullopt;
  if (failed == wire::error::end_of_stream || failed == wire::error::partial_message) return std::nullopt;
  if (failed == wire::error::header_limit || failed == wire::error::buffer_overflow)
    return wire::status::request_header_fields_too_large;
  if (failed == wire::error::body_limit) return wire::status::payload_too_large;
  return wire::status::bad_request;
}

Answer plain(wire::status status) {
  Answer answer{status, 11};
  answer.set(wire::field::content_type, "text/plain; charset=utf-8");
  answer.body() = std::string(wire::obsolete_reason(status)) + "\n";
  answer.keep_alive(false);
  return answer;
}

task<error_code> read_request(Clock& clock, std::shared_ptr<Connection> connection, Parser& parser, duration limit) {
  const Cutoff cutoff(clock, connection, limit);
  error_code failed;
  co_await wire::async_read(connection->socket, connection->buffer, parser,
                            asio::redirect_error(asio::use_awaitable, failed));
  co_return failed;
}

task<error_code> await_byte(Clock& clock, std::shared_ptr<Connection> connection, duration limit) {
  error_code failed;
  if (connection->buffer.size() > 0) co_return failed;
  const Cutoff cutoff(clock, connection, limit);
  connection->idle = true;
  co_await connection->socket.async_wait(tcp::socket::wait_read, asio::redirect_error(asio::use_awaitable, failed));
  connection->idle = false;
  co_return failed;
}

task<error_code> write_answer(Clock& clock, std::shared_ptr<Connection> connection, Answer& answer, bool header_only,
                              duration limit) {
  const Cutoff cutoff(clock, connection, limit);
  connection->answering = true;
  connection->since = clock.now();
  error_code failed;
  answer.prepare_payload();
  const std::string sent = wire_text(answer, header_only);
  co_await asio::async_write(connection->socket, asio::buffer(sent), asio::redirect_error(asio::use_awaitable, failed));
  connection->answering = false;
  connection->since = clock.now();
  co_return failed;
}

/// Reads the rest: a close with unread bytes would reset the connection, and the client might never see the answer.
task<> part(Clock& clock, std::shared_ptr<Connection> connection, duration limit) {
  const Cutoff cutoff(clock, connection, limit);
  error_code failed;
  connection->socket.shutdown(tcp::socket::shutdown_send, failed);
  std::array<char, 4096> dropped;
  connection->idle = true;
  for (std::size_t taken = 0; !failed && taken < kDrained;)
    taken += co_await connection->socket.async_read_some(asio::buffer(dropped),
                                                         asio::redirect_error(asio::use_awaitable, failed));
}

}  // namespace

class Server::Impl {
 public:
  Impl(executor control, Clock& clock, Config config, Handler handler)
      : control_(control),
        clock_(clock),
        config_(std::move(config)),
        handler_(std::move(handler)),
        rate_(config_.limits.peer_rate, config_.limits.peer_burst),
        acceptor_(control),
        gate_(control, clock) {}

  result<> start();
  task<> stop(Until until);
  std::uint16_t port() const { return port_; }
  std::size_t connections() const {
    return static_cast<std::size_t>(std::ranges::count(connections_, false, &is_evicted));
  }

 private:
  using Place = std::list<std::shared_ptr<Connection>>::iterator;
  static task<> accept(Impl& self);
  static task<> serve(Impl& self, Place place);
  static task<> converse(Impl& self, std::shared_ptr<Connection> connection);
  void admit(Fd fd, Peer peer);
  static bool is_evicted(const std::shared_ptr<Connection>& connection) { return connection->evicted; }
  bool make_room(const Peer& peer);
  static task<bool> turn(Impl& self, std::shared_ptr<Connection> connection);
  static task<Answer> answer(Impl& self, std::shared_ptr<Connection> connection,
                             const wire::request<wire::string_body>& request);

  executor control_;
  Clock& clock_;
  const Config config_;
  const Handler handler_;
  Rate rate_;
  tcp::acceptor acceptor_;
  std::uint16_t port_ = 0;
  std::list<std::shared_ptr<Connection>> connections_;
  CancelScope stopping_;
  Gate gate_;
};

result<> Server::Impl::start() {
  error_code failed;
  const auto address = asio::ip::make_address(config_.address, failed);
  if (failed)
    return Error{errc::invalid_argument,
                 "'" + config_.address + "' is not an IP address: give one of this node's, or 0.0.0.0"};
  const tcp::endpoint endpoint(address, config_.port);
  auto fd = listen_on(endpoint);
  if (!fd) return fd.error();
  acceptor_.assign(endpoint.protocol(), fd->get(), failed);
  if (failed) return Error{errc::unavailable, "listening on " + text_of(endpoint) + ": " + failed.message()};
  fd->release();
  port_ = acceptor_.local_endpoint(failed).port();
  gate_.spawn(accept(*this));
  return {};
}

task<> Server::Impl::accept(Impl& self) {
  while (!self.stopping_.cancelled()) {
    error_code failed;
    co_await self.acceptor_.async_wait(tcp::acceptor::wait_read, asio::redirect_error(asio::use_awaitable, failed));
    if (failed) co_return;
    // Do not use Asio's accept(), whose sockets are not CLOEXEC.
    tcp::endpoint from;
    auto length = static_cast<socklen_t>(from.capacity());
    Fd fd(::accept4(self.acceptor_.native_handle(), from.data(), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool exhausted = !fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (exhausted)
      co_await sleep_until(self.control_, self.clock_, self.clock_.now() + kNoDescriptors, &self.stopping_);
    if (!fd) continue;
    from.resize(length);
    const Peer peer = peer_of(from.address());
    if (self.make_room(peer)) self.admit(std::move(fd), peer);
  }
}

/// Closes a connection of this peer if the peer has its share already, or any connection if the server is full.
bool Server::Impl::make_room(const Peer& peer) {
  const auto of_peer = [&](const auto& connection) { return !connection->evicted && connection->peer == peer; };
  const bool has_its_share =
      static_cast<std::size_t>(std::ranges::count_if(connections_, of_peer)) >= config_.limits.peer_connections;
  if (!has_its_share && connections() < config_.limits.connections) return true;
  std::shared_ptr<Connection> idlest;
  const auto rank = [](const Connection& of) { return std::pair(of.answering, of.since); };
  for (const auto& connection : connections_) {
    // A client that does not read its answer in time loses this protection.
    const bool busy = connection->answering && clock_.now() - connection->since < kReadsWithin;
    const bool may_go = !connection->evicted && !busy && (!has_its_share || connection->peer == peer);
    if (may_go && (idlest == nullptr || rank(*connection) < rank(*idlest))) idlest = connection;
  }
  if (idlest == nullptr) return false;
  idlest->evicted = true;
  idlest->cut();
  return true;
}

void Server::Impl::admit(Fd fd, Peer peer) {
  const auto connection = std::make_shared<Connection>(control_, config_.limits, std::move(peer), clock_.now());
  error_code failed;
  connection->socket.assign(acceptor_.local_endpoint(failed).protocol(), fd.get(), failed);
  if (failed) return;
  fd.release();
  const auto place = connections_.insert(connections_.end(), connection);
  if (!gate_.spawn(serve(*this, place))) connections_.erase(place);
}

task<> Server::Impl::serve(Impl& self, Place place) {
  const auto& connection = *place;
  co_await converse(self, connection);
  connection->cut();
  self.connections_.erase(place);
}

task<> Server::Impl::converse(Impl& self, std::shared_ptr<Connection> connection) {
  const Limits& limits = self.config_.limits;
  for (bool keep = true; keep;) {
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    parser.body_limit(limits.body_bytes);
    const error_code unread = co_await read_request(self.clock_, connection, parser, limits.header);
    const auto refused = refusal(unread);
    if (unread && !refused) co_return;
    // A refused request costs a turn, too.
    const bool may = co_await turn(self, connection);
    if (!may) co_return;
    Answer answer;
    if (refused)
      answer = plain(*refused);
    else
      answer = co_await Impl::answer(self, connection, parser.get());
    if (self.stopping_.cancelled()) answer.keep_alive(false);
    keep = answer.keep_alive();
    const bool head = !refused && parser.get().method() == wire::verb::head;
    const error_code unwritten = co_await write_answer(self.clock_, connection, answer, head, limits.idle);
    if (unwritten) co_return;
    if (!keep) break;
    const error_code left = co_await await_byte(self.clock_, connection, limits.idle);
    if (left) co_return;
  }
  if (!self.stopping_.cancelled()) co_await part(self.clock_, connection, limits.header);
}

/// Waits until this peer's next request may be answered. False: its connection made room for another meanwhile.
task<bool> Server::Impl::turn(Impl& self, std::shared_ptr<Connection> connection) {
  while (!connection->evicted && !self.stopping_.cancelled() && !self.rate_.take(connection->peer, self.clock_.now()))
    co_await sleep_until(self.control_, self.clock_, self.rate_.next(connection->peer), &self.stopping_);
  co_return !connection->evicted;
}

task<Answer> Server::Impl::answer(Impl& self, std::shared_ptr<Connection> connection,
                                  const wire::request<wire::string_body>& request) {
  if (request.method() != wire::verb::get && request.method() != wire::verb::head) {
    Answer refused = plain(wire::status::method_not_allowed);
    refused.set(wire::field::allow, "GET, HEAD");
    refused.keep_alive(request.keep_alive());
    co_return refused;
  }
  connection->answering = true;
  connection->since = self.clock_.now();
  const Request asked{std::string(request.method_string()), std::string(request.target())};
  Response made = co_await self.handler_(asked);
  Answer answer{static_cast<wire::status>(made.status), request.version()};
  answer.set(wire::field::content_type, made.content_type);
  answer.set(wire::field::cache_control, "no-store");
  answer.keep_alive(request.keep_alive());
  answer.body() = std::move(made.body);
  co_return answer;
}

task<> Server::Impl::stop(Until until) {
  stopping_.cancel();
  error_code ignored;
  acceptor_.close(ignored);
  for (const auto& connection : connections_)
    if (connection->idle) connection->cut();
  const Waited ended = co_await gate_.close(until);
  if (ended == Waited::ready) co_return;
  for (const auto& connection : connections_) connection->cut();
  co_await gate_.close({});
}

task<Response> answered(Response response) { co_return response; }

Server::Server(executor control, Clock& clock, Config config, Handler handler)
    : impl_(std::make_unique<Impl>(std::move(control), clock, std::move(config), std::move(handler))) {}
Server::~Server() = default;
result<> Server::start() { return impl_->start(); }
task<> Server::stop(Until until) { return impl_->stop(until); }
std::uint16_t Server::port() const { return impl_->port(); }
std::size_t Server::connections() const { return impl_->connections(); }

}  // namespace corbd::http
