#include "corbd/cephcsi/key.hpp"

#include "corbd/core/base64.hpp"

namespace corbd::cephcsi {
std::string_view name(KeyType type) {
  switch (type) {
    case KeyType::aes:
      return "aes";
    case KeyType::aes256k:
      return "aes256k";
    case KeyType::unknown:
      break;
  }
  return "unknown";
}

KeyType key_type(std::string_view key) {
  const auto bytes = from_base64(key.substr(0, 4));
  if (!bytes || bytes->size() < 2 || bytes->at(1) != 0) return KeyType::unknown;
  return bytes->at(0) == 1 ? KeyType::aes : bytes->at(0) == 2 ? KeyType::aes256k : KeyType::unknown;
}

std::optional<std::chrono::sys_seconds> made_at(std::string_view key) {
  // The time is behind the type: four bytes, the lowest first (docs/sources.md#cephx-keys). The first 12 letters have
  // both, and nothing of the secret.
  constexpr std::size_t letters = 12, begin = 2, end = begin + 4;
  const auto bytes = from_base64(key.substr(0, letters));
  if (!bytes || bytes->size() < end || key_type(key) == KeyType::unknown) return std::nullopt;
  std::uint32_t seconds = 0;
  for (std::size_t i = end; i > begin; --i) seconds = seconds << 8U | static_cast<unsigned char>(bytes->at(i - 1));
  return std::chrono::sys_seconds(std::chrono::seconds(seconds));
}

}  // namespace corbd::cephcsi
