#include "ttlv.hpp"

namespace corbd::kms {
namespace {

constexpr std::size_t kTtlvHeader = 8, kTtlvUnit = 8;

std::string big_endian(std::uint64_t value, int size) {
  std::string text;
  for (int byte = size - 1; byte >= 0; --byte) text += static_cast<char>(value >> (8 * byte) & 0xff);
  return text;
}

std::uint32_t from_big_endian(std::string_view text) {
  std::uint32_t value = 0;
  for (const unsigned char c : text) value = value << 8 | c;
  return value;
}

constexpr std::size_t padded(std::size_t size) { return (size + kTtlvUnit - 1) / kTtlvUnit * kTtlvUnit; }

}  // namespace

std::string ttlv(TtlvTag tag, TtlvType type, std::string_view value) {
  std::string text =
      big_endian(static_cast<std::uint32_t>(tag), 3) + static_cast<char>(type) + big_endian(value.size(), 4);
  text += value;
  text.resize(kTtlvHeader + padded(value.size()));
  return text;
}

std::string ttlv(TtlvTag tag, TtlvType type, std::uint32_t value) { return ttlv(tag, type, big_endian(value, 4)); }

std::optional<std::uint32_t> TtlvItem::number() const {
  if ((type != TtlvType::integer && type != TtlvType::enumeration) || value.size() != 4) return std::nullopt;
  return from_big_endian(value);
}

std::optional<TtlvItem> take_ttlv(std::string_view& text) {
  if (text.size() < kTtlvHeader) return std::nullopt;
  const std::size_t size = from_big_endian(text.substr(4, 4));
  if (text.size() - kTtlvHeader < padded(size)) return std::nullopt;
  const TtlvItem item{static_cast<TtlvTag>(from_big_endian(text.substr(0, 3))), static_cast<TtlvType>(text[3]),
                      text.substr(kTtlvHeader, size)};
  text.remove_prefix(kTtlvHeader + padded(size));
  return item;
}

std::optional<TtlvItem> find_ttlv(std::string_view text, std::initializer_list<TtlvTag> path) {
  std::optional<TtlvItem> found;
  for (const TtlvTag tag : path) {
    if (found && found->type != TtlvType::structure) return std::nullopt;
    if (found) text = found->value;
    do {
      found = take_ttlv(text);
    } while (found && found->tag != tag);
    if (!found) return std::nullopt;
  }
  return found;
}

}  // namespace corbd::kms
