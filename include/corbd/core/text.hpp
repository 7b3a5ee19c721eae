// Small things about what an outsider wrote.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corbd {

/// Between separators, also empty ones.
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

/// For texts: at most 64 bytes, '?' for what is no printable ASCII.
inline std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 64));
  for (char& c : shown)
    if (c < 0x20 || c > 0x7e) c = '?';
  return shown + (text.size() > shown.size() ? "..." : "");
}

}  // namespace corbd
