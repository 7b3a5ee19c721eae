// Reads and cleans text for the doctor: monitors' addresses, mountinfo, secrets. Pure.
#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <sstream>

#include "inputs.hpp"

namespace corbd::doctor {
namespace {

constexpr std::string_view kRedacted = "<redacted>";
// A Ceph key of type aes is 28 bytes in base64, one of type aes256k 44; the first two are the type, 1 or 2, and 0:
// "AQ", "Ag".
constexpr std::size_t kCephKey = 40;

bool is_base64(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' || c == '=';
}

bool is_word(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool sounds_secret(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  constexpr std::array words{"secret", "password", "passwd", "passphrase", "token", "credential"};
  return lower.ends_with("key") || lower.ends_with("pass") ||
         std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return lower.find(word) != std::string::npos; });
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

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

/// mountinfo writes a space as "\040".
std::string unescaped(std::string_view text) {
  const auto octal = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '7'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool holds(const std::string& target, std::string_view path) {
  return target == "/" || path == target ||
         (path.starts_with(target) && path.size() > target.size() && path[target.size()] == '/');
}

void add_endpoint(std::string_view text, std::vector<Endpoint>& into) {
  for (const std::string_view protocol : {"v1:", "v2:", "any:"})
    if (text.starts_with(protocol)) text.remove_prefix(protocol.size());
  text = text.substr(0, text.find('/'));  // the nonce
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

std::vector<Endpoint> endpoints_of(std::string_view monitor) {
  std::vector<Endpoint> all;
  // [v2:HOST:PORT/0,v1:HOST:PORT/0]; in [IPV6]:PORT the bracket belongs to the host.
  const bool vector = monitor.starts_with("[v") || monitor.starts_with("[any:");
  if (vector) monitor = monitor.substr(1, monitor.size() - 1 - (monitor.ends_with(']') ? 1 : 0));
  for (const auto& one : split(monitor, ',')) add_endpoint(one, all);
  return all;
}

std::optional<bool> is_shared(std::string_view mountinfo, std::string_view path) {
  std::optional<bool> shared;
  std::size_t longest = 0;
  for (const auto& line : split(mountinfo, '\n')) {
    const auto fields = split(line, ' ');
    if (fields.size() < 7) continue;
    const std::string target = unescaped(fields[4]);
    // If two are mounted at one place, the later line is on top.
    if (!holds(target, path) || target.size() < longest) continue;
    longest = target.size();
    shared = false;
    for (std::size_t i = 6; i < fields.size() && fields[i] != "-"; ++i)
      if (fields[i].starts_with("shared:")) shared = true;
  }
  return shared;
}

std::vector<MountLine> mount_lines(std::string_view mountinfo) {
  std::vector<MountLine> lines;
  for (const auto& line : split(mountinfo, '\n')) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 7 || fields.end() - dash < 3) continue;
    lines.push_back({fields[2], unescaped(fields[3]), unescaped(fields[4]), dash[1], unescaped(dash[2])});
  }
  return lines;
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
