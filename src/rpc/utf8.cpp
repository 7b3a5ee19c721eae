#include "corbd/rpc/utf8.hpp"

#include <array>

namespace corbd::rpc {
namespace {

/// A row of the table in RFC 3629, section 4: first byte, and the range of the second. Every later byte is 80..BF.
struct Form {
  unsigned char first_low, first_high, second_low, second_high;
  std::size_t length;
};
constexpr std::array kForms{
    Form{0x00, 0x7F, 0x00, 0x00, 1}, Form{0xC2, 0xDF, 0x80, 0xBF, 2}, Form{0xE0, 0xE0, 0xA0, 0xBF, 3},
    Form{0xE1, 0xEC, 0x80, 0xBF, 3}, Form{0xED, 0xED, 0x80, 0x9F, 3}, Form{0xEE, 0xEF, 0x80, 0xBF, 3},
    Form{0xF0, 0xF0, 0x90, 0xBF, 4}, Form{0xF1, 0xF3, 0x80, 0xBF, 4}, Form{0xF4, 0xF4, 0x80, 0x8F, 4}};

/// Returns the bytes of the valid sequence at the start; 0 if there is none.
std::size_t sequence(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  for (const Form& form : kForms) {
    if (byte(0) < form.first_low || byte(0) > form.first_high) continue;
    if (form.length > text.size()) return 0;
    if (form.length > 1 && (byte(1) < form.second_low || byte(1) > form.second_high)) return 0;
    for (std::size_t at = 2; at < form.length; ++at)
      if ((byte(at) & 0xC0) != 0x80) return 0;
    return form.length;
  }
  return 0;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence(text);
    out.append(length > 0 ? text.substr(0, length) : "?");
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

}  // namespace corbd::rpc
