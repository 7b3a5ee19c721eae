#include "corbd/http/client.hpp"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <list>
#include <memory>

#include "corbd/core/fd.hpp"
#include "cutoff.hpp"
#include "dial.hpp"
#include "exchange.hpp"
#include "request.hpp"

namespace corbd::http {
namespace {

namespace ssl = asio::ssl;
namespace wire = boost::beast::http;
using tcp = asio::ip::tcp;

constexpr std::size_t kKept = 4;

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
    const error_code failed = co_await converse(clock_, *connection, exchange, timing_.head, until);
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
  Bytes bytes;
  error_code failed;
  {
    const SocketCutoff cutoff(clock_, connection.socket, until.at_most(clock_.now() + timing_.head));
    failed = co_await converse_in_bytes(connection, request, length, limit, bytes);
  }
  wipe(request);
  if (failed) co_return why(failed, until, "asking");
  if (bytes.fits) co_return std::move(bytes.answer);
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
