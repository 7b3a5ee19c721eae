// How a Ceph user proves who it is, by the key in its node-stage secret or keyring (docs/sources.md#cephx-keys). Pure.
#pragma once

#include <string_view>

namespace corbd::cephcsi {

/// The older type, and the one that Ceph 20.2.4 brought.
enum class KeyType { unknown, aes, aes256k };

/// Of a key as Ceph prints it, or of its first four letters, which tell the type and nothing of the secret.
KeyType key_type(std::string_view key);

}  // namespace corbd::cephcsi
