// The key of one volume, wrapped by another key, as ceph-csi keeps it in the image's metadata.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"

namespace corbd::kms {

/// ceph-csi's encryptedMetadataDEK, as JSON {"dek": base64, "nonce": base64}.
struct WrappedKey {
  std::string dek, nonce;
};
/// state_corrupt: the text is no such JSON.
result<WrappedKey> parse_wrapped_key(std::string_view text);
std::string text_of(const WrappedKey& wrapped);

/// Opens a key that Go's AES-GCM wrapped: a nonce of 12 bytes, the tag at the end of `dek`. `with` has 16, 24 or 32
/// bytes. unauthenticated: it was not wrapped with that key. state_corrupt: AES-GCM wrapped nothing like that.
result<Secret> open_key(const WrappedKey& wrapped, const Secret& with);
result<WrappedKey> seal_key(const Secret& key, const Secret& with);

/// Unwraps as ceph-csi's internal/kms/secretskms.go: AES-256-GCM with scrypt(passphrase, volume id; 32768, 8, 1). It
/// takes 32 MiB and a tenth of a second: not for the control thread. Errors are those of Kms::unwrap(), and of the
/// functions above.
result<Secret> unwrap_key(std::string_view volume_id, std::string_view wrapped, const Secret& passphrase);
result<std::string> wrap_key(std::string_view volume_id, const Secret& key, const Secret& passphrase);

}  // namespace corbd::kms
