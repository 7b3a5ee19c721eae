// Reads and cleans text for the doctor: monitors' addresses and secrets. Pure.
#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "corbd/core/text.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

constexpr std::string_view kRedacted = "<redacted>";
// A Ceph key of type aes has 28 bytes in base64, one of type aes256k 44. The first two bytes are the type, 1 or 2, and
// 0: "AQ", "Ag".
constexpr std::size_t kCephKey = 40;

bool is_base64(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' || c == '=';
}

bool is_word(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool sounds_secret(std::string_view of) {
  const std::string name = lower(of);
  constexpr std::array words{"secret", "password", "passwd", "passphrase", "token", "credential"};
  return name.ends_with("key") || name.ends_with("pass") ||
         std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return name.find(word) != std::string::npos; });
}

std::string without_ceph_keys(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_base64(text[end])) ++end;
    const auto run = text.substr(i, end - i);
    const bool typed = run.find("AQ") != run.npos || run.find("Ag") != run.npos;
    const bool key = run.size() >= kCephKey && typed && run.ends_with('=');
    out.append(key ? kRedacted : run);
    if (end < text.size()) out += text[end];
    i = end + 1;
  }
  return out;
}

void add_endpoint(std::string_view text, std::vector<Endpoint>& into) {
  for (const std::string_view protocol : {"v1:", "v2:", "any:"})
    if (text.starts_with(protocol)) text.remove_prefix(protocol.size());
  text = text.substr(0, text.find('/'));  // removes the nonce
  if (text.empty()) return;
  std::string host(text), port;
  const auto colon = text.rfind(':');
  const bool bare_ipv6 = !text.starts_with('[') && std::count(text.begin(), text.end(), ':') > 1;
  if (colon != text.npos && !bare_ipv6 && !text.ends_with(']')) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!port.empty()) return into.push_back({host, port});
  for (const char* known : {"3300", "6789"}) into.push_back({host, known});
}

}  // namespace

std::string listed(const std::vector<std::string>& all, const char* between) {
  std::string text;
  for (const auto& one : all) text += (text.empty() ? "" : between) + one;
  return text;
}

std::vector<Endpoint> endpoints_of(std::string_view monitor) {
  std::vector<Endpoint> all;
  // Handles [v2:HOST:PORT/0,v1:HOST:PORT/0]; in [IPV6]:PORT the bracket belongs to the host.
  const bool vector = monitor.starts_with("[v") || monitor.starts_with("[any:");
  if (vector) monitor = monitor.substr(1, monitor.size() - 1 - (monitor.ends_with(']') ? 1 : 0));
  for (const auto& one : pieces(monitor, ',')) add_endpoint(one, all);
  return all;
}

boost::json::value redacted_json(boost::json::value value) {
  if (auto* object = value.if_object()) {
    for (auto& entry : *object) {
      auto cleaned = redacted_json(entry.value());
      const bool secret = sounds_secret(entry.key()) && !cleaned.is_structured();
      entry.value() = secret ? boost::json::value(boost::json::string(kRedacted)) : std::move(cleaned);
    }
  } else if (auto* array = value.if_array()) {
    for (auto& entry : *array) entry = redacted_json(entry);
  } else if (auto* text = value.if_string()) {
    return boost::json::string(without_ceph_keys(*text));
  }
  return value;
}

std::string redacted_text(std::string_view text) {
  const std::string clean = without_ceph_keys(text);
  std::string out, name;
  for (std::size_t i = 0; i < clean.size(); ++i) {
    out += clean[i];
    if (clean[i] == '=' && sounds_secret(name)) {
      out += kRedacted;
      i = std::min(clean.find_first_of(", \t\n", i), clean.size()) - 1;
      name.clear();
    } else if (is_word(clean[i])) {
      name += clean[i];
    } else {
      name.clear();
    }
  }
  return out;
}

}  // namespace corbd::doctor
