#include "corbd/core/text.hpp"

namespace corbd {

void append_percent_encoded(std::string& to, std::string_view text, std::string_view plain) {
  constexpr std::string_view digits = "0123456789ABCDEF", marks = "-._~";
  const auto is_plain = [&](char c) {
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || marks.find(c) != marks.npos ||
           plain.find(c) != plain.npos;
  };
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_plain(c))
      to += c;
    else
      to += {'%', digits[byte >> 4], digits[byte & 15]};
  }
}

}  // namespace corbd
