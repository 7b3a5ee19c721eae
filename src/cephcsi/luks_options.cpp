#include "corbd/cephcsi/luks_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string_view>

#include "corbd/core/text.hpp"

namespace corbd::cephcsi {
namespace {

constexpr std::array<std::string_view, 4> kCiphers{"aes-xts-plain64", "serpent-xts-plain64", "aes-xts-random",
                                                   "serpent-xts-random"};
constexpr std::array<std::string_view, 2> kKeySizes{"256", "512"};
constexpr std::array<std::string_view, 4> kSectorSizes{"512", "1024", "2048", "4096"};
constexpr std::array<std::string_view, 2> kIntegrityModes{"hmac-sha256", "hmac-sha512"};

std::string listed(std::span<const std::string_view> allowed) {
  std::string text;
  for (const auto one : allowed) text += (text.empty() ? "" : ", ") + std::string(one);
  return text;
}

/// Returns the attribute's value; "" if it is not set, or not one of `allowed`.
std::string one_of(const Attributes& attributes, const char* key, std::span<const std::string_view> allowed,
                   LuksOptions& into) {
  const auto place = attributes.find(key);
  if (place == attributes.end() || place->second.empty()) return {};
  if (std::ranges::find(allowed, place->second) != allowed.end()) return place->second;
  into.refused = std::string(key) + " '" + printable(place->second) + "' is not allowed: use one of " + listed(allowed);
  return {};
}

void set_number(std::uint32_t& number, const std::string& text) {
  std::from_chars(text.data(), text.data() + text.size(), number);
}

}  // namespace

LuksOptions read_luks_options(const Attributes& attributes) {
  LuksOptions options;
  if (auto cipher = one_of(attributes, "encryptionCipher", kCiphers, options); !cipher.empty())
    options.cipher = std::move(cipher);
  set_number(options.key_bits, one_of(attributes, "encryptionKeySize", kKeySizes, options));
  set_number(options.sector_bytes, one_of(attributes, "encryptionSectorSize", kSectorSizes, options));
  options.integrity = one_of(attributes, "integrityMode", kIntegrityModes, options);
  // A random IV is stored beside the tag, so it needs a tag.
  if (options.refused.empty() && options.integrity.empty() && options.cipher.ends_with("-random"))
    options.refused =
        "encryptionCipher '" + options.cipher + "' needs integrityMode: use one of " + listed(kIntegrityModes);
  return options;
}

}  // namespace corbd::cephcsi
