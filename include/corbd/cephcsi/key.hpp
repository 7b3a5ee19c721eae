// How a Ceph user proves who it is, by the key in its node-stage secret or keyring (docs/sources.md#cephx-keys). Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace corbd::cephcsi {

/// `aes` is the older type; Ceph 20.2.4 introduced `aes256k`.
enum class KeyType { unknown, aes, aes256k };

/// "aes", "aes256k", "unknown".
std::string_view name(KeyType type);

/// Takes a key as Ceph prints it, or its first four letters, which show the type and nothing of the secret.
KeyType key_type(std::string_view key);

/// When Ceph made the key, by the key. Nothing: it is none that this version knows.
std::optional<std::chrono::sys_seconds> made_at(std::string_view key);

}  // namespace corbd::cephcsi
