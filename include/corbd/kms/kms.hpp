// Where the key of an encrypted volume comes from: ceph-csi's key management systems (docs/sources.md#kms).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/secret.hpp"

namespace corbd::kms {

/// Where the key is that opens a volume.
enum class Kind {
  shared,   ///< the passphrase in the node-stage secret opens every volume
  wrapped,  ///< in the image's metadata, encrypted by the KMS (ceph-csi's DEKStoreMetadata)
  stored    ///< in the KMS, under the volume's ID (ceph-csi's DEKStoreIntegrated)
};

/// What a KMS asks of a volume.
struct Terms {
  Kind kind = Kind::shared;
  bool needs_passphrase = false;  ///< encryptionPassphrase of the node-stage secret
  bool opens_files =
      true;  ///< it has a secret for encrypted files: every one that does not wrap keys, and passphrase()
};

/// Whose key it is.
struct KeyOwner {
  std::string volume_id;
  std::string tenant = {};  ///< namespace of the claim, ceph-csi's csi.volume.owner; empty: not known
};

/// What a volume brings along to its KMS.
struct KeyRequest {
  std::string kms_id;
  KeyOwner owner;
  Secret passphrase = {};                      ///< encryptionPassphrase of the node-stage secret; empty: it has none
  std::map<std::string, Secret> secrets = {};  ///< what else that secret has
};

/// What a KMS of the kind `stored` has of a volume.
struct Stored {
  std::optional<Secret> key;  ///< nothing: it has none
  /// What a write must name to replace it, so that one that arrives after another changes nothing. Nothing: this KMS
  /// takes whatever arrives last.
  std::optional<std::uint64_t> version = std::nullopt;
};

/// The ID of a KMS that needs no config. Its type has the same name.
inline constexpr std::string_view kDefaultKms = "default";

/// Each call reads the config anew; kDefaultKms needs none.
class Kms {
 public:
  virtual ~Kms() = default;
  /// unimplemented names a type that we do not serve.
  virtual task<result<Terms>> terms(std::string kms_id, Until until) = 0;
  /// Of a KMS whose kind is `wrapped`. unauthenticated: it was wrapped with another passphrase, or for another volume.
  virtual task<result<Secret>> unwrap(KeyRequest request, std::string wrapped, Until until) = 0;
  virtual task<result<std::string>> wrap(KeyRequest request, Secret key, Until until) = 0;
  /// What a KMS of the kind `wrapped` wraps with, if that is a passphrase: it opens encrypted files itself (ceph-csi's
  /// GetSecret).
  virtual task<result<Secret>> passphrase(KeyRequest request, Until until) = 0;
  /// Of a KMS whose kind is `stored`.
  virtual task<result<Stored>> fetch(KeyRequest request, Until until) = 0;
  /// In place of what has that version, as fetch() told it; the key has the next one then. unavailable: it is another
  /// version by now. Whatever the answer, the write may still arrive at any later time.
  virtual task<result<>> store(KeyRequest request, Secret key, std::optional<std::uint64_t> version, Until until) = 0;
};

/// The part of Kubernetes' API that a KMS needs.
class Kubernetes {
 public:
  virtual ~Kubernetes() = default;
  /// Decoded data. not_found: there is no such Secret.
  virtual task<result<std::map<std::string, Secret>>> secret(std::string name_space, std::string name, Until until) = 0;
  virtual task<result<std::map<std::string, std::string>>> config_map(std::string name_space, std::string name,
                                                                      Until until) = 0;
  /// A TokenRequest. Without audiences: those of the API server.
  virtual task<result<Secret>> account_token(std::string name_space, std::string service_account,
                                             std::vector<std::string> audiences, Until until) = 0;
};

struct Config {
  std::string folder;         ///< of config.json
  std::string own_namespace;  ///< POD_NAMESPACE; empty outside Kubernetes
  std::string config_map;     ///< there, where the folder has no config.json: KMS_CONFIGMAP_NAME
};

/// Control thread only. `pool`: for files and for deriving keys. `kubernetes`: null if there is no API server. A KMS's
/// servers get threads of their own to look up names, so that a silent resolver holds none of `pool`.
std::unique_ptr<Kms> make_kms(executor control, Clock& clock, BlockingPool& pool, Kubernetes* kubernetes,
                              Config config);

/// Of a KMS in the text of config.json. failed_precondition: it is not there, or broken; unimplemented as above.
result<Terms> terms_of(std::string_view config, std::string_view kms_id);

/// Why a KMS of config.json cannot serve, or which of its keys mean nothing: a sentence each.
struct Complaint {
  std::string kms_id;
  bool serves = false;  ///< in spite of it
  std::string text;
};
std::vector<Complaint> check_config(std::string_view config);
/// Of the file in that folder. Blocks. None: there is no file.
std::vector<Complaint> check_folder(const std::string& folder);

/// Random bytes of a new key for a LUKS header, and for encrypted files, as ceph-csi makes them.
inline constexpr std::size_t kLuksKeyBytes = 20, kFileKeyBytes = 64;
/// In base64url.
result<Secret> make_volume_key(std::size_t bytes = kLuksKeyBytes);

}  // namespace corbd::kms
