#include "request.hpp"

#include <algorithm>
#include <boost/beast/http.hpp>

namespace corbd::http {
namespace {

namespace wire = boost::beast::http;

/// Leaves out the scheme's own port: some servers compare the header with their name, or sign it.
std::string host_header(const Peer& peer) {
  const std::string text = peer.text();
  return peer.port == (peer.tls ? 443 : 80) ? text.substr(0, text.rfind(':')) : text;
}

}  // namespace

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

}  // namespace corbd::http
