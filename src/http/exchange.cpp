#include "exchange.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <ctime>
#include <span>

#include "corbd/core/append_wiping.hpp"
#include "cutoff.hpp"

namespace corbd::http {
namespace {

namespace ssl = asio::ssl;
namespace wire = boost::beast::http;
using tcp = asio::ip::tcp;
using AnswerParser = wire::response_parser<wire::buffer_body>;

constexpr std::size_t kErrorBytes = 1 << 20;
/// Limit of 1xx answers before the answer itself.
constexpr int kInterimAnswers = 8;

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
task<error_code> converse_on(Clock& clock, OpenConnection& connection, Stream& stream, Exchange& exchange,
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

template <class Stream>
task<error_code> converse_in_bytes_on(Stream& stream, const std::string& request, const Client::Length& length,
                                      std::size_t limit, Bytes& bytes) {
  std::string& answer = bytes.answer;
  error_code failed;
  co_await asio::async_write(stream, asio::buffer(request), into(failed));
  if (failed) co_return co_await why_unsent(stream, failed);
  while (!failed) {
    const auto wanted = length(answer);
    bytes.fits = wanted <= limit;
    const auto had = answer.size();
    if (!bytes.fits || wanted <= had) break;
    answer.resize(wanted);
    co_await asio::async_read(stream, asio::buffer(answer.data() + had, wanted - had), into(failed));
  }
  co_return failed;
}

}  // namespace

bool OpenConnection::has_more() {
  auto* const secured = tls ? tls->native_handle() : nullptr;
  if (buffer.size() > 0) return true;
  if (secured != nullptr && (::SSL_has_pending(secured) != 0 || BIO_pending(::SSL_get_rbio(secured)) > 0)) return true;
  error_code failed;
  return socket->available(failed) > 0 || failed;
}

task<error_code> converse(Clock& clock, OpenConnection& connection, Exchange& exchange, std::chrono::milliseconds head,
                          Until until) {
  if (connection.tls) co_return co_await converse_on(clock, connection, *connection.tls, exchange, head, until);
  co_return co_await converse_on(clock, connection, *connection.socket, exchange, head, until);
}

task<error_code> converse_in_bytes(OpenConnection& connection, const std::string& request, const Client::Length& length,
                                   std::size_t limit, Bytes& bytes) {
  if (connection.tls) co_return co_await converse_in_bytes_on(*connection.tls, request, length, limit, bytes);
  co_return co_await converse_in_bytes_on(*connection.socket, request, length, limit, bytes);
}

}  // namespace corbd::http
