// The key of one volume, wrapped as ceph-csi's metadata KMS does.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"

namespace corbd::kms {

/// ceph-csi's internal/kms/secretskms.go: {"dek": base64, "nonce": base64}, AES-256-GCM with scrypt(passphrase, volume
/// id; 32768, 8, 1). 32 MiB and a tenth of a second: not for the control thread. Errors as of Kms::unwrap();
/// state_corrupt for what is no such JSON.
result<Secret> unwrap_key(std::string_view volume_id, std::string_view wrapped, const Secret& passphrase);
result<std::string> wrap_key(std::string_view volume_id, const Secret& key, const Secret& passphrase);

}  // namespace corbd::kms
