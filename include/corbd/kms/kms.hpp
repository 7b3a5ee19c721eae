// Sources of an encrypted volume's key: ceph-csi's key management systems (docs/sources.md#kms).
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

/// Place of the key that opens a volume.
enum class Kind {
  shared,   ///< the passphrase in the node-stage secret opens every volume
  wrapped,  ///< in the image's metadata, encrypted by the KMS (ceph-csi's DEKStoreMetadata)
  stored    ///< in the KMS, under the volume's ID (ceph-csi's DEKStoreIntegrated)
};

/// Requirements of a KMS for a volume.
struct Terms {
  Kind kind = Kind::shared;
  bool needs_passphrase = false;  ///< encryptionPassphrase of the node-stage secret
  bool opens_files =
      true;  ///< it has a secret for encrypted files: false only if it wraps keys and has no passphrase()
};

/// The volume that a key belongs to, and its tenant.
struct KeyOwner {
  std::string volume_id;
  std::string tenant = {};  ///< namespace of the claim, ceph-csi's csi.volume.owner; empty: not known
};

/// A volume's inputs for its KMS.
struct KeyRequest {
  std::string kms_id;
  KeyOwner owner;
  Secret passphrase = {};                      ///< encryptionPassphrase of the node-stage secret; empty: it has none
  std::map<std::string, Secret> secrets = {};  ///< the other values of that secret
};

/// State of a volume in a KMS of the kind `stored`.
struct Stored {
  std::optional<Secret> key;  ///< nothing: it has none
  /// Version that a write must name to replace the key, so that a late write changes nothing. Nothing: this KMS takes
  /// whatever arrives last.
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
  /// For the kind `wrapped`. unauthenticated: it was wrapped with another passphrase, or for another volume.
  virtual task<result<Secret>> unwrap(KeyRequest request, std::string wrapped, Until until) = 0;
  virtual task<result<std::string>> wrap(KeyRequest request, Secret key, Until until) = 0;
  /// For the kind `wrapped`, if it wraps with a passphrase: returns that, which opens encrypted files itself
  /// (ceph-csi's GetSecret).
  virtual task<result<Secret>> passphrase(KeyRequest request, Until until) = 0;
  /// For the kind `stored`.
  virtual task<result<Stored>> fetch(KeyRequest request, Until until) = 0;
  /// Replaces the key with that version, from fetch(); the new key has the next one. unavailable: the version is
  /// another one by now. Whatever the answer, the write may still arrive at any later time.
  virtual task<result<>> store(KeyRequest request, Secret key, std::optional<std::uint64_t> version, Until until) = 0;
};

/// The part of Kubernetes' API that a KMS needs.
class Kubernetes {
 public:
  virtual ~Kubernetes() = default;
  /// Returns decoded data. not_found: there is no such Secret.
  virtual task<result<std::map<std::string, Secret>>> secret(std::string name_space, std::string name, Until until) = 0;
  virtual task<result<std::map<std::string, std::string>>> config_map(std::string name_space, std::string name,
                                                                      Until until) = 0;
  /// Makes a TokenRequest. Without audiences it is for the API server.
  virtual task<result<Secret>> account_token(std::string name_space, std::string service_account,
                                             std::vector<std::string> audiences, Until until) = 0;
};

struct Config {
  std::string folder;         ///< folder of config.json
  std::string own_namespace;  ///< POD_NAMESPACE; empty outside Kubernetes
  std::string config_map;     ///< there, if the folder has no config.json: KMS_CONFIGMAP_NAME
};

/// Control thread only. `pool`: for files and for deriving keys. `kubernetes`: null if there is no API server. A KMS's
/// servers get threads of their own for looking up names, so that a silent resolver holds none of `pool`.
std::unique_ptr<Kms> make_kms(executor control, Clock& clock, BlockingPool& pool, Kubernetes* kubernetes,
                              Config config);

/// Returns the terms of a KMS in the text of config.json. failed_precondition: it is missing, or broken; unimplemented
/// as above.
result<Terms> terms_of(std::string_view config, std::string_view kms_id);

/// Reason why a KMS of config.json cannot serve, or keys of it without effect: a sentence each.
struct Complaint {
  std::string kms_id;
  bool serves = false;  ///< it serves all the same
  std::string text;
};
std::vector<Complaint> check_config(std::string_view config);
/// Checks the file in that folder. Blocks. Empty also if there is no file.
std::vector<Complaint> check_folder(const std::string& folder);

/// Random bytes in a new key for a LUKS header, and for encrypted files, as ceph-csi makes them.
inline constexpr std::size_t kLuksKeyBytes = 20, kFileKeyBytes = 64;
/// Makes a key in base64url.
result<Secret> make_volume_key(std::size_t bytes = kLuksKeyBytes);

}  // namespace corbd::kms
