// Where the passphrase of an encrypted volume comes from: ceph-csi's key management systems (docs/sources.md#kms), as
// far as they are known.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/secret.hpp"

namespace corbd::kms {

/// The role of the passphrase in the node-stage secret.
enum class Kind {
  shared,     ///< ceph-csi's "default": it opens every volume
  per_volume  ///< ceph-csi's "metadata": it wraps the volume's own key, which is in the image's metadata
};

class Kms {
 public:
  virtual ~Kms() = default;
  /// Reads config.json of the KMS folder anew; "default" needs none. unimplemented names a type that we do not serve.
  virtual result<Kind> kind(const std::string& kms_id) const = 0;
  /// unauthenticated: it was wrapped with another passphrase, or for another volume.
  virtual task<result<Secret>> unwrap(std::string volume_id, std::string wrapped, Secret passphrase, Until until) = 0;
  virtual task<result<std::string>> wrap(std::string volume_id, Secret key, Secret passphrase, Until until) = 0;
};

std::unique_ptr<Kms> make_kms(BlockingPool& pool, std::string config_dir);

/// Takes the file's text. failed_precondition: it is not there, or broken; unimplemented as above.
result<Kind> kind_of(std::string_view config, std::string_view kms_id);

/// ceph-csi's internal/kms/secretskms.go: {"dek": base64, "nonce": base64}, AES-256-GCM with scrypt(passphrase, volume
/// id; 32768, 8, 1). 32 MiB and a tenth of a second: not for the control thread. Errors as of unwrap(); state_corrupt
/// for what is no such JSON.
result<Secret> unwrap_key(std::string_view volume_id, std::string_view wrapped, const Secret& passphrase);
result<std::string> wrap_key(std::string_view volume_id, const Secret& key, const Secret& passphrase);
/// 20 random bytes in base64url, as ceph-csi's provisioner makes them.
result<Secret> make_volume_key();

}  // namespace corbd::kms
