// Small things about texts.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace corbd {

/// Splits text at the separator, and keeps empty pieces.
inline std::vector<std::string_view> pieces(std::string_view text, char separator) {
  std::vector<std::string_view> all;
  for (std::size_t at = 0;;) {
    const auto end = text.find(separator, at);
    all.push_back(text.substr(at, end - at));
    if (end == text.npos) return all;
    at = end + 1;
  }
}

inline std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// ASCII alone, in any locale.
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made) c = lower(c);
  return made;
}
inline bool same_in_any_case(std::string_view one, std::string_view other) {
  return std::ranges::equal(one, other, [](char a, char b) { return lower(a) == lower(b); });
}

/// Two lower-case digits for each byte.
inline std::string hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

/// Writes the text for a URL: everything but the unreserved characters of RFC 3986, and those of `plain`, is %XX.
void append_percent_encoded(std::string& to, std::string_view text, std::string_view plain = {});
inline std::string percent_encoded(std::string_view text, std::string_view plain = {}) {
  std::string made;
  append_percent_encoded(made, text, plain);
  return made;
}

/// For texts: at most 64 bytes, '?' for what is no printable ASCII.
inline std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 64));
  for (char& c : shown)
    if (c < 0x20 || c > 0x7e) c = '?';
  return shown + (text.size() > shown.size() ? "..." : "");
}

}  // namespace corbd
