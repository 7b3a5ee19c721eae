// The keys in fscrypt's metadata: a secret opens a protector, and the protector opens the key of a folder.
#pragma once

#include <string>

#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/host/fscrypt.hpp"
#include "fscrypt/metadata.pb.h"

namespace corbd::host {

inline constexpr std::size_t kProtectorKeyBytes = 32, kFolderKeyBytes = 64;
/// ceph-csi finds its protector by this name.
inline constexpr const char* kProtectorName = "ceph-csi";

result<Secret> make_fscrypt_key(std::size_t bytes);

/// AES-256-CTR, then HMAC-SHA256, by keys that HKDF-SHA256 derives from `with`, which has 32 bytes.
result<fscrypt::WrappedKey> wrap_fscrypt_key(const Secret& with, const Secret& key);
/// unauthenticated: it was wrapped with another key, or is damaged.
result<Secret> unwrap_fscrypt_key(const Secret& with, const fscrypt::WrappedKey& wrapped);

/// Makes a protector of `key` that the secret opens.
result<fscrypt::Protector> make_protector(const FscryptSecret& secret, const Secret& key);
/// Returns the protector's key. It also tries an older ceph-csi's reading of a passphrase: its first 32 bytes, filled
/// up with NUL.
result<Secret> open_protector(const fscrypt::Protector& protector, const Secret& secret);

}  // namespace corbd::host
