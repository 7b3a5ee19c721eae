// 128 bits of a state's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace corbd::search {

struct Hash {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Hash&) const = default;
  struct Short {
    std::size_t operator()(const Hash& hash) const { return hash.low; }
  };
};

namespace hashing {
/// MurmurHash3's finalizer, fmix64.
constexpr std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 33)) * 0xff51afd7ed558ccd;
  word = (word ^ (word >> 33)) * 0xc4ceb9fe1a85ec53;
  return word ^ (word >> 33);
}
}  // namespace hashing

template <class Value>
Hash hash_of(const Value& value) {
  static_assert(std::has_unique_object_representations_v<Value>);
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  Hash hash{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f};
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  for (std::size_t at = 0; at < sizeof value; at += kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, at + kWord <= sizeof value ? kWord : sizeof value - at);
    hash.high = hashing::mix(hash.high ^ word) + 0x165667b19e3779f9;
    hash.low = hashing::mix(hash.low + word * 0x27d4eb2f165667c5);
  }
  return hash;
}

}  // namespace corbd::search
