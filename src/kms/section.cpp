#include "section.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "corbd/core/text.hpp"

namespace corbd::kms {
namespace {

template <std::size_t count>
bool is_one_of(std::string_view text, const std::array<std::string_view, count>& all) {
  return std::ranges::find(all, text) != all.end();
}

/// Parses "host", "host:8200" or "[::1]:8200".
bool read_authority(std::string_view authority, http::Peer& into) {
  const bool bracketed = authority.starts_with('[');
  const auto end = bracketed ? authority.find(']') : authority.find(':');
  into.host = authority.substr(bracketed ? 1 : 0, end == authority.npos ? end : end - (bracketed ? 1 : 0));
  if (bracketed && end == authority.npos) return false;
  const auto rest = end == authority.npos ? std::string_view() : authority.substr(end + (bracketed ? 1 : 0));
  if (rest.empty()) return !into.host.empty();
  const auto port = rest.substr(1);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), into.port);
  return rest.starts_with(':') && !into.host.empty() && !port.empty() && parsed.ec == std::errc() &&
         parsed.ptr == port.data() + port.size() && into.port != 0;
}

}  // namespace

result<std::optional<std::string>> text_option(const Section& section, std::string_view key, const std::string& id) {
  const auto* value = section.if_contains(boost::json::string_view(key.data(), key.size()));
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string())
    return Error{errc::failed_precondition, "KMS \"" + id + "\" has a " + std::string(key) +
                                                " that is no text: put its value in quotes in the ConfigMap"};
  return std::optional<std::string>(value->get_string());
}

result<std::string> needed_option(const Section& section, std::string_view key, const std::string& id) {
  auto found = text_option(section, key, id);
  if (!found) return found.error();
  if (*found && !trimmed(**found).empty()) return std::move(**found);
  return Error{errc::failed_precondition,
               "KMS \"" + id + "\" has no " + std::string(key) + ": add it in the ConfigMap"};
}

std::optional<bool> parse_bool(std::string_view text) {
  constexpr std::array<std::string_view, 6> yes{"1", "t", "T", "TRUE", "true", "True"};
  constexpr std::array<std::string_view, 6> no{"0", "f", "F", "FALSE", "false", "False"};
  if (is_one_of(text, yes)) return true;
  if (is_one_of(text, no)) return false;
  return std::nullopt;
}

std::optional<Url> parse_url(std::string_view text) {
  constexpr std::string_view plain = "http://", secure = "https://";
  Url url;
  url.peer.tls = text.starts_with(secure);
  if (!url.peer.tls && !text.starts_with(plain)) return std::nullopt;
  url.peer.port = url.peer.tls ? 443 : 80;
  text.remove_prefix(url.peer.tls ? secure.size() : plain.size());
  const auto slash = text.find('/');
  const auto authority = text.substr(0, slash);
  // Everything goes into a request's first lines.
  const bool clean = std::ranges::all_of(text, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!clean || authority.find_first_of("@?#") != authority.npos || !read_authority(authority, url.peer))
    return std::nullopt;
  if (slash != text.npos) url.path = text.substr(slash);
  if (url.path.find_first_of("?#") != url.path.npos) return std::nullopt;
  while (url.path.ends_with('/')) url.path.pop_back();
  return url;
}

}  // namespace corbd::kms
