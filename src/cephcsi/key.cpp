#include "corbd/cephcsi/key.hpp"

#include "corbd/core/base64.hpp"

namespace corbd::cephcsi {

KeyType key_type(std::string_view key) {
  const auto bytes = from_base64(key.substr(0, 4));
  if (!bytes || bytes->size() < 2 || bytes->at(1) != 0) return KeyType::unknown;
  return bytes->at(0) == 1 ? KeyType::aes : bytes->at(0) == 2 ? KeyType::aes256k : KeyType::unknown;
}

}  // namespace corbd::cephcsi
