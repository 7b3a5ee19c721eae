#include "corbd/http/client.hpp"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <list>
#include <memory>
#include <span>

#include "corbd/core/append_wiping.hpp"
#include "corbd/core/fd.hpp"
#include "cutoff.hpp"
#include "dial.hpp"

namespace corbd::http {
namespace {

namespace ssl = asio::ssl;
namespace wire = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using AnswerParser = wire::response_parser<wire::buffer_body>;

constexpr std::size_t kHeaderBytes = 64 << 10, kPieceBytes = 16 << 10, kErrorBytes = 1 << 20, kKept = 4;
/// Limit of 1xx answers before the answer itself.
constexpr int kInterimAnswers = 8;

auto into(error_code& failed) { return asio::redirect_error(asio::use_awaitable, failed); }

struct OpenConnection {
  explicit OpenConnection(const executor& control) : socket(std::make_shared<tcp::socket>(control)) {}
  ~OpenConnection() {
    buffer.clear();
    const auto all = buffer.prepare(buffer.capacity());
    wipe(std::span(static_cast<char*>(all.data()), all.size()));
  }
  OpenConnection(const OpenConnection&) = delete;
  OpenConnection& operator=(const OpenConnection&) = delete;
  /// Whether the server has sent bytes that nobody read. Then the next answer on the connection would be somebody
  /// else's.
  bool has_more() {
    auto* const secured = tls ? tls->native_handle() : nullptr;
    if (buffer.size() > 0) return true;
    if (secured != nullptr && (::SSL_has_pending(secured) != 0 || BIO_pending(::SSL_get_rbio(secured)) > 0))
      return true;
    error_code failed;
    return socket->available(failed) > 0 || failed;
  }
  std::shared_ptr<tcp::socket> socket;
  std::optional<ssl::stream<tcp::socket&>> tls;
  boost::beast::flat_buffer buffer{kHeaderBytes + kPieceBytes};
};

bool is_tls(const error_code& failed) { return failed.category() == asio::error::get_ssl_category(); }

/// The server's alert says that it does not take this client's certificate, or wants one (RFC 8446, 6.2).
bool refuses_certificate(const error_code& failed) {
  constexpr std::array alerts{SSL_AD_BAD_CERTIFICATE,     SSL_AD_UNSUPPORTED_CERTIFICATE, SSL_AD_CERTIFICATE_REVOKED,
                              SSL_AD_CERTIFICATE_EXPIRED, SSL_AD_CERTIFICATE_UNKNOWN,     SSL_AD_UNKNOWN_CA,
                              SSL_AD_ACCESS_DENIED,       SSL_AD_CERTIFICATE_REQUIRED};
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(failed.value()));
  return is_tls(failed) && std::ranges::find(alerts, reason - SSL_AD_REASON_OFFSET) != alerts.end();
}

/// "/O=corbd/CN=node": of the first certificate in a PEM text.
std::string subject_of(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&::BIO_free)> text(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                         &::BIO_free);
  const std::unique_ptr<X509, decltype(&::X509_free)> certificate(
      ::PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), &::X509_free);
  std::array<char, 256> name{};
  if (certificate)
    ::X509_NAME_oneline(::X509_get_subject_name(certificate.get()), name.data(), static_cast<int>(name.size()));
  return name.data();
}

bool is_protocol(const error_code& failed) {
  return failed.category() == wire::make_error_code(wire::error::end_of_stream).category();
}

/// Whether the peer ended, or was never there.
bool is_end(const error_code& failed) {
  return failed == wire::error::end_of_stream || failed == wire::error::partial_message ||
         failed == ssl::error::stream_truncated;
}

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

std::optional<std::chrono::seconds> seconds_of(std::string_view text) {
  unsigned number = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return std::chrono::seconds(number);
}

/// Parses "Sun, 06 Nov 1994 08:49:37 GMT", the only form that a server may send.
std::optional<std::chrono::system_clock::time_point> date_of(std::string_view text) {
  std::tm parts{};
  const std::string written(text);
  const char* end = ::strptime(written.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end == nullptr || *end != '\0' || parts.tm_year < 70 || parts.tm_year > 300) return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

struct Wiping {
  ~Wiping() { wipe(bytes); }
  std::span<char> bytes;
};

/// Why a request could not be sent whole: with TLS 1.3 the server refuses a client after that has sent its first bytes,
/// and nobody has read the alert yet.
task<error_code> why_unsent(ssl::stream<tcp::socket&>& stream, error_code unsent) {
  char byte = 0;
  error_code said;
  co_await stream.async_read_some(asio::buffer(&byte, 1), into(said));
  co_return is_tls(said) ? said : unsent;
}
task<error_code> why_unsent(tcp::socket&, error_code unsent) { co_return unsent; }

/// Returns false if enough has come.
bool take(Exchange& exchange, std::string_view piece) {
  const bool good = exchange.reply.status / 100 == 2;
  if (exchange.sink && good) return exchange.sink(piece);
  const std::size_t limit = good ? exchange.limit : std::min(exchange.limit, kErrorBytes);
  const std::size_t room = limit - exchange.reply.body.size();
  const bool fits = piece.size() <= room;
  // The beginning of a refusal is enough.
  append_wiping(exchange.reply.body, piece.substr(0, room));
  exchange.too_long = good && !fits;
  return fits;
}

template <class Stream>
task<error_code> read_body(Clock& clock, OpenConnection& connection, Stream& stream, AnswerParser& parser,
                           Exchange& exchange, Until until) {
  std::array<char, kPieceBytes> piece;
  const Wiping wipes{piece};
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    const SocketCutoff cutoff(clock, connection.socket, until.at_most(clock.now() + exchange.idle));
    error_code failed;
    co_await wire::async_read_some(stream, connection.buffer, parser, into(failed));
    if (failed == wire::error::need_buffer) failed = {};
    if (failed) co_return failed;
    const std::size_t got = piece.size() - parser.get().body().size;
    if (got > 0 && !take(exchange, {piece.data(), got})) co_return error_code();
  }
  exchange.whole = true;
  exchange.keep = parser.keep_alive() && !connection.has_more();
  co_return error_code();
}

template <class Stream>
task<error_code> converse(Clock& clock, OpenConnection& connection, Stream& stream, Exchange& exchange,
                          std::chrono::milliseconds head, Until until) {
  std::optional<AnswerParser> parser;
  {
    const SocketCutoff cutoff(clock, connection.socket, until.at_most(clock.now() + head));
    error_code failed;
    co_await asio::async_write(stream, asio::buffer(exchange.request), into(failed));
    if (failed) co_return co_await why_unsent(stream, failed);
    for (int interim = 0; !failed; ++interim) {
      parser.emplace();
      parser->body_limit(boost::none);
      parser->header_limit(kHeaderBytes);
      co_await wire::async_read_header(stream, connection.buffer, *parser, into(failed));
      // A server may send 100, 102 and 103 before its answer, also unasked.
      if (failed || parser->get().result_int() / 100 != 1) break;
      if (interim == kInterimAnswers) failed = wire::error::bad_status;
    }
    if (failed) co_return failed;
  }
  exchange.answered = true;
  exchange.reply.status = parser->get().result_int();
  exchange.reply.retry_after = seconds_of(parser->get()[wire::field::retry_after]);
  exchange.reply.date = date_of(parser->get()[wire::field::date]);
  co_return co_await read_body(clock, connection, stream, *parser, exchange, until);
}

/// Sends the request and reads until `length` is satisfied. False: the answer is longer than `limit`.
template <class Stream>
task<error_code> converse_in_bytes(Stream& stream, const std::string& request, const Client::Length& length,
                                   std::size_t limit, std::string& answer, bool& fits) {
  error_code failed;
  co_await asio::async_write(stream, asio::buffer(request), into(failed));
  if (failed) co_return co_await why_unsent(stream, failed);
  while (!failed) {
    const auto wanted = length(answer);
    fits = wanted <= limit;
    const auto had = answer.size();
    if (!fits || wanted <= had) break;
    answer.resize(wanted);
    co_await asio::async_read(stream, asio::buffer(answer.data() + had, wanted - had), into(failed));
  }
  co_return failed;
}

/// Leaves out the scheme's own port: some servers compare the header with their name, or sign it.
std::string host_header(const Peer& peer) {
  const std::string text = peer.text();
  return peer.port == (peer.tls ? 443 : 80) ? text.substr(0, text.rfind(':')) : text;
}

/// Checks what Beast does not: it throws for a value beyond 64 KiB, and sends a line end as it is.
result<> check_headers(const Message& message) {
  constexpr std::size_t most = 32 << 10;
  const auto fits = [](std::string_view value) {
    return value.size() <= most &&
           std::ranges::all_of(value, [](unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); });
  };
  for (const auto& [name, value] : message.headers)
    if (!fits(value))
      return Error{errc::failed_precondition, "the header " + name + " would be too long, or has control characters"};
  if (!fits(message.bearer.reveal()))
    return Error{errc::failed_precondition,
                 "the token for the header Authorization is too long, or has control characters"};
  if (!fits(message.target))
    return Error{errc::failed_precondition, "the path of the request is too long, or has control characters"};
  return {};
}

/// Builds the request in a string that never moves: it may contain a token and a key. Beast's fields would keep copies
/// of both.
std::string request_of(const Message& message, const Peer& peer) {
  const auto has = [&](wire::field wanted) {
    return std::ranges::any_of(message.headers,
                               [&](const auto& one) { return wire::string_to_field(one.first) == wanted; });
  };
  std::vector<std::string_view> parts{message.method, " ", message.target, " HTTP/1.1\r\n"};
  const auto field = [&](std::string_view name, std::string_view value) {
    parts.insert(parts.end(), {name, ": ", value, "\r\n"});
  };
  const std::string host = host_header(peer), length = std::to_string(message.body.size());
  if (!has(wire::field::host)) field("Host", host);
  if (!has(wire::field::user_agent)) field("User-Agent", "corbd");
  for (const auto& [name, value] : message.headers) field(name, value);
  if (!message.bearer.empty()) parts.insert(parts.end(), {"Authorization: Bearer ", message.bearer.reveal(), "\r\n"});
  if (!message.body.empty() || message.method != "GET") field("Content-Length", length);
  parts.insert(parts.end(), {"\r\n", message.body});
  std::string made;
  std::size_t size = 0;
  for (const auto part : parts) size += part.size();
  made.reserve(size);
  for (const auto part : parts) made += part;
  return made;
}

/// Takes kAddressesTried of them, alternately from both families, as RFC 8305 says.
std::vector<tcp::endpoint> some_of_both(const std::vector<tcp::endpoint>& all) {
  std::vector<tcp::endpoint> some;
  const auto take = [&](bool v6, std::size_t nth) {
    for (const auto& one : all)
      if (one.address().is_v6() == v6 && nth-- == 0 && some.size() < kAddressesTried) some.push_back(one);
  };
  const bool first = !all.empty() && all.front().address().is_v6();
  for (std::size_t nth = 0; nth < all.size(); ++nth) {
    take(first, nth);
    take(!first, nth);
  }
  return some;
}

}  // namespace

std::string Peer::text() const {
  const bool v6 = host.find(':') != host.npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

class Client::Impl {
 public:
  Impl(executor control, Clock& clock, BlockingPool& pool, Peer peer, Timing timing)
      : control_(std::move(control)),
        clock_(clock),
        own_(std::make_unique<Dialer>(control_, clock, pool, nullptr)),
        dialer_(*own_),
        peer_(std::move(peer)),
        timing_(timing) {}
  Impl(executor control, Clock& clock, const Dialer& dialer, std::string share, Peer peer, Timing timing)
      : control_(std::move(control)),
        clock_(clock),
        dialer_(dialer),
        share_(std::move(share)),
        peer_(std::move(peer)),
        timing_(timing) {}

  task<result<Reply>> ask(Message message, Sink sink, Until until);
  task<result<std::string>> exchange(std::string request, Client::Length length, std::size_t limit, Until until);
  void set_peer(Peer peer) {
    peer_ = std::move(peer);
    kept_.clear();
  }
  const Peer& peer() const { return peer_; }

 private:
  using Connected = std::shared_ptr<OpenConnection>;
  task<result<std::vector<tcp::endpoint>>> find(Until until);
  task<result<Connected>> connect(Until until);
  task<error_code> open(OpenConnection& connection, Context context, tcp::endpoint to, Until until);
  Connected take_kept();
  task<error_code> run(OpenConnection& connection, Exchange& exchange, Until until);
  Error why(const error_code& failed, Until until, std::string_view doing) const;

  executor control_;
  Clock& clock_;
  const std::unique_ptr<Dialer> own_;
  const Dialer& dialer_;
  const std::string share_;
  Peer peer_;
  const Timing timing_;
  std::list<Connected> kept_;
};

Error Client::Impl::why(const error_code& failed, Until until, std::string_view doing) const {
  const std::string what = std::string(doing) + " " + peer_.text();
  if (until.scope != nullptr && until.scope->cancelled()) return wait_error(Waited::cancelled, what);
  if (clock_.now() >= until.deadline) return wait_error(Waited::deadline, what);
  if (failed == asio::error::operation_aborted || failed == asio::error::bad_descriptor)
    return {errc::unavailable, what + ": no answer in time"};
  if (is_end(failed)) return {errc::unavailable, what + ": the server closed the connection"};
  if (is_tls(failed)) {
    const std::string refused = peer_.certificate.empty()
                                    ? "wants a client certificate, and none is configured"
                                    : "refuses the client certificate " + subject_of(peer_.certificate);
    return {errc::unauthenticated,
            what + ": TLS: " + failed.message() + (refuses_certificate(failed) ? ": the server " + refused : "")};
  }
  if (is_protocol(failed)) return {errc::io, what + ": the answer is not HTTP: " + failed.message()};
  return {errc::unavailable, what + ": " + failed.message()};
}

task<error_code> Client::Impl::open(OpenConnection& connection, Context context, tcp::endpoint to, Until until) {
  error_code failed;
  // Do not use Asio's socket(), which is not CLOEXEC.
  Fd fd(::socket(to.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) co_return error_code(errno, boost::system::system_category());
  connection.socket->assign(to.protocol(), fd.get(), failed);
  if (failed) co_return failed;
  keep_alive(fd.release());
  const SocketCutoff cutoff(clock_, connection.socket, until.at_most(clock_.now() + timing_.connect));
  co_await connection.socket->async_connect(to, into(failed));
  if (failed || !context) co_return failed;
  auto& tls = connection.tls.emplace(*connection.socket, *context);
  error_code is_name;
  asio::ip::make_address(peer_.certified_name(), is_name);
  if (is_name) ::SSL_set_tlsext_host_name(tls.native_handle(), peer_.certified_name().c_str());
  tls.set_verify_mode(peer_.insecure ? ssl::verify_none : ssl::verify_peer, failed);
  if (!failed && !peer_.insecure) tls.set_verify_callback(ssl::host_name_verification(peer_.certified_name()), failed);
  if (failed) co_return failed;
  co_await tls.async_handshake(ssl::stream_base::client, into(failed));
  co_return failed;
}

/// An address needs no resolver, and so no thread of the pool.
task<result<std::vector<tcp::endpoint>>> Client::Impl::find(Until until) {
  error_code is_name;
  const auto address = asio::ip::make_address(peer_.host, is_name);
  if (!is_name) co_return std::vector<tcp::endpoint>(1, tcp::endpoint(address, peer_.port));
  const auto dialer = dialer_.impl().shared_from_this();
  const auto found =
      co_await Dialer::Impl::find(dialer, peer_.host, share_, until.at_most(clock_.now() + timing_.connect));
  if (!found) co_return found.error();
  std::vector<tcp::endpoint> endpoints;
  for (const auto& text : *found)
    if (const auto one = asio::ip::make_address(text, is_name); !is_name) endpoints.emplace_back(one, peer_.port);
  // The API server's name is the operator's. For a name that others choose only some addresses of both families are
  // tried.
  if (!own_) endpoints = some_of_both(endpoints);
  co_return endpoints;
}

task<result<Client::Impl::Connected>> Client::Impl::connect(Until until) {
  Context context;  // must live as long as a handshake uses it
  if (peer_.tls) {
    const auto dialer = dialer_.impl().shared_from_this();
    auto made = co_await Dialer::Impl::context(dialer, peer_, until.at_most(clock_.now() + timing_.connect));
    if (!made) co_return made.error();
    context = std::move(*made);
  }
  const auto endpoints = co_await find(until);
  if (!endpoints) co_return endpoints.error();
  error_code failed = asio::error::host_not_found;
  for (const auto& endpoint : *endpoints) {
    auto connection = std::make_shared<OpenConnection>(control_);
    failed = co_await open(*connection, context, endpoint, until);
    if (!failed) co_return connection;
    if (clock_.now() >= until.deadline || (until.scope != nullptr && until.scope->cancelled())) break;
  }
  co_return why(failed, until, "connecting to");
}

/// Takes a kept connection that is silent since its last answer. Null: there is none.
Client::Impl::Connected Client::Impl::take_kept() {
  std::erase_if(kept_, [](const Connected& one) { return one->has_more(); });
  if (kept_.empty()) return nullptr;
  auto taken = kept_.front();
  kept_.pop_front();
  return taken;
}

task<error_code> Client::Impl::run(OpenConnection& connection, Exchange& exchange, Until until) {
  if (connection.tls) co_return co_await converse(clock_, connection, *connection.tls, exchange, timing_.head, until);
  co_return co_await converse(clock_, connection, *connection.socket, exchange, timing_.head, until);
}

task<result<Reply>> Client::Impl::ask(Message message, Sink sink, Until until) {
  if (auto good = check_headers(message); !good) {
    wipe(message.body);
    co_return good.error();
  }
  Exchange exchange;
  exchange.request = request_of(message, peer_);
  wipe(message.body);
  exchange.sink = std::move(sink);
  exchange.limit = message.limit;
  exchange.idle = message.idle.value_or(timing_.idle);
  for (;;) {
    Connected connection = take_kept();
    const bool kept = connection != nullptr;
    if (!kept) {
      auto made = co_await connect(until);
      if (!made) co_return made.error();
      connection = std::move(*made);
    }
    const error_code failed = co_await run(*connection, exchange, until);
    if (exchange.keep && kept_.size() < kKept) kept_.push_back(connection);
    if (exchange.too_long)
      co_return Error{errc::exhausted, "the answer of " + peer_.text() + " to " + message.method + " " +
                                           message.target + " has more than " + std::to_string(exchange.limit) +
                                           " bytes"};
    if (!failed) co_return std::move(exchange.reply);
    // The connection may have been closed long ago, and the others with it.
    if (kept && !exchange.answered) kept_.clear();
    if (kept && !exchange.answered && message.method == "GET" && clock_.now() < until.deadline) continue;
    Error error = why(failed, until, message.method + " " + message.target + " of");
    // The server may have carried out the request, so this is no refusal.
    if (message.stores && final_for_caller(error.code)) error.code = errc::unavailable;
    co_return error;
  }
}

task<result<std::string>> Client::Impl::exchange(std::string request, Client::Length length, std::size_t limit,
                                                 Until until) {
  const auto made = co_await connect(until);
  if (!made) co_return made.error();
  OpenConnection& connection = **made;
  std::string answer;
  bool fits = true;
  error_code failed;
  {
    const SocketCutoff cutoff(clock_, connection.socket, until.at_most(clock_.now() + timing_.head));
    if (connection.tls)
      failed = co_await converse_in_bytes(*connection.tls, request, length, limit, answer, fits);
    else
      failed = co_await converse_in_bytes(*connection.socket, request, length, limit, answer, fits);
  }
  wipe(request);
  if (failed) co_return why(failed, until, "asking");
  if (fits) co_return answer;
  co_return Error{errc::exhausted,
                  "the answer of " + peer_.text() + " has more than " + std::to_string(limit) + " bytes"};
}

Client::Client(executor control, Clock& clock, BlockingPool& pool, Peer peer, Timing timing)
    : impl_(std::make_unique<Impl>(std::move(control), clock, pool, std::move(peer), timing)) {}
Client::Client(executor control, Clock& clock, const Dialer& dialer, std::string share, Peer peer, Timing timing)
    : impl_(std::make_unique<Impl>(std::move(control), clock, dialer, std::move(share), std::move(peer), timing)) {}
Client::~Client() = default;
task<result<Reply>> Client::call(Message message, Until until, Sink sink) {
  return impl_->ask(std::move(message), std::move(sink), until);
}
task<result<std::string>> Client::exchange(std::string request, Length length, std::size_t limit, Until until) {
  return impl_->exchange(std::move(request), std::move(length), limit, until);
}
void Client::set_peer(Peer peer) { impl_->set_peer(std::move(peer)); }
const Peer& Client::peer() const { return impl_->peer(); }

}  // namespace corbd::http
