// Bytes as text, two digits each.
#pragma once

#include <cstddef>
#include <string>

namespace corbd::host {

inline std::string to_hex(const unsigned char* bytes, std::size_t count) {
  constexpr char digits[] = "0123456789abcdef";
  constexpr unsigned low = 0xf;
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & low];
  }
  return text;
}

}  // namespace corbd::host
