// Port to the encrypted folder of a mounted filesystem, by the kernel's fscrypt, in a helper process. Its metadata are
// ceph-csi's and fscrypt's own (docs/sources.md#fscrypt). `target` is the filesystem's mount point.
#pragma once

#include <string>

#include "corbd/core/fields.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/host/host.hpp"

namespace corbd::host {

/// Secret that opens a folder.
struct FscryptSecret {
  Secret secret;
  /// The secret is hashed as a passphrase, which costs an argon2 with 64 MiB: the caller bounds how many run at once.
  /// If false, its first 32 bytes are the key.
  bool passphrase = false;
  static constexpr std::tuple fields{fields::required("secret", &FscryptSecret::secret),
                                     fields::required("passphrase", &FscryptSecret::passphrase)};
};

/// Errors of all calls: not_found if nothing is mounted there, failed_precondition for a filesystem that cannot
/// encrypt.
class Fscrypt {
 public:
  virtual ~Fscrypt() = default;
  /// unimplemented: the folder has a policy of version 1.
  virtual task<result<EncryptedFolder>> look(std::string target, HelperOwner owner, Until until) = 0;
  /// Makes the folder with a key of its own, which `secret` opens, and unlocks it. Metadata of an earlier try stay. A
  /// folder that is encrypted already is only unlocked; not_empty for one that holds unencrypted files.
  virtual task<result<>> make(std::string target, FscryptSecret secret, HelperOwner owner, Until until) = 0;
  /// Puts the folder's key into the filesystem's keyring. unauthenticated: `secret` does not open it; nothing was
  /// changed.
  virtual task<result<>> unlock(std::string target, FscryptSecret secret, HelperOwner owner, Until until) = 0;
  /// Syncs the filesystem and removes the key. Succeeds too if there is no key or no folder. Open files stay readable
  /// to their users.
  virtual task<result<>> lock(std::string target, HelperOwner owner, Until until) = 0;
};

}  // namespace corbd::host
