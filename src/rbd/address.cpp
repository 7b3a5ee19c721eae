#include "address.hpp"

#include <algorithm>

namespace corbd::rbd {
namespace {

bool starts_with_protocol(std::string_view text) {
  return text.starts_with("v1:") || text.starts_with("v2:") || text.starts_with("any:");
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_host(std::string_view text) {
  if (text.starts_with('[') != text.ends_with(']')) return false;
  constexpr std::string_view allowed = "0123456789abcdefABCDEF.:%[]";
  return !text.empty() && text.find_first_not_of(allowed) == text.npos;
}

// Matches HOST:PORT/NONCE; an IPv6 host is in brackets.
bool is_bare(std::string_view text) {
  const auto slash = text.rfind('/');
  if (slash == text.npos || !is_number(text.substr(slash + 1))) return false;
  const auto endpoint = text.substr(0, slash);
  const auto colon = endpoint.rfind(':');
  return colon != endpoint.npos && is_number(endpoint.substr(colon + 1)) && is_host(endpoint.substr(0, colon));
}

}  // namespace

std::vector<std::string> parse_addresses(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']') && starts_with_protocol(text.substr(1)))
    text = text.substr(1, text.size() - 2);
  std::vector<std::string> found;
  while (!text.empty()) {
    const auto comma = text.find(',');
    auto one = text.substr(0, comma);
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
    if (starts_with_protocol(one)) one = one.substr(one.find(':') + 1);
    if (!is_bare(one)) return {};
    if (std::find(found.begin(), found.end(), one) == found.end()) found.emplace_back(one);
  }
  return found;
}

std::string bare_address(std::string_view text) {
  const auto parsed = parse_addresses(text);
  return parsed.size() == 1 ? parsed.front() : std::string(text);
}

}  // namespace corbd::rbd
