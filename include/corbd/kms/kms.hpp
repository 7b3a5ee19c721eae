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

/// The ID of a KMS that needs no config. Its type has the same name.
inline constexpr std::string_view kDefaultKms = "default";

class Kms {
 public:
  virtual ~Kms() = default;
  /// Reads config.json of the KMS folder anew; kDefaultKms needs none. unimplemented names a type that we do not serve.
  virtual result<Kind> kind(const std::string& kms_id) const = 0;
  /// Of a KMS that is `per_volume`. unauthenticated: it was wrapped with another passphrase, or for another volume.
  virtual task<result<Secret>> unwrap(std::string kms_id, std::string volume_id, std::string wrapped, Secret passphrase,
                                      Until until) = 0;
  virtual task<result<std::string>> wrap(std::string kms_id, std::string volume_id, Secret key, Secret passphrase,
                                         Until until) = 0;
};

std::unique_ptr<Kms> make_kms(BlockingPool& pool, std::string config_dir);

/// Takes the file's text. failed_precondition: it is not there, or broken; unimplemented as above.
result<Kind> kind_of(std::string_view config, std::string_view kms_id);

/// 20 random bytes in base64url, as ceph-csi's provisioner makes them.
result<Secret> make_volume_key();

}  // namespace corbd::kms
