#include "fscrypt_steps.hpp"

#include "corbd/core/log.hpp"

namespace corbd::volume {

/// Returns the secret that opens the folder, as ceph-csi chooses it (docs/sources.md#fscrypt): the passphrase with
/// which a KMS wraps keys, but no such key; otherwise the key that the KMS stores, or its one passphrase.
task<result<host::FscryptSecret>> FscryptSteps::secret_of(Volume& volume, const Wish& wish) {
  const auto terms = co_await ports_.kms.terms(volume.record->encryption->kms_id(), deadline());
  if (!terms) co_return terms.error();
  if (terms->kind == kms::Kind::wrapped) {
    auto passphrase = co_await keys_.passphrase(volume, wish);
    if (!passphrase) co_return passphrase.error();
    co_return host::FscryptSecret{std::move(*passphrase), true};
  }
  auto key = co_await keys_.key(volume, wish);
  if (!key) co_return key.error();
  co_return host::FscryptSecret{std::move(*key), false};
}

/// Only a passphrase is hashed with argon2.
task<result<DerivationTurn>> FscryptSteps::turn_for(const Volume& volume, bool passphrase) {
  if (!passphrase) co_return DerivationTurn();
  co_return co_await luks_.key_derivation(volume);
}

task<result<>> FscryptSteps::look(Volume& volume, std::string target) {
  auto found = co_await ports_.fscrypt.look(std::move(target), owner(volume), while_served(volume, deadline()));
  if (!found) co_return found.error();
  volume.facts.folder = *found;
  co_return result<>();
}

task<result<>> FscryptSteps::make(Volume& volume, std::string target, const Wish& wish) {
  auto secret = co_await secret_of(volume, wish);
  if (!secret) co_return secret.error();
  const auto turn = co_await turn_for(volume, secret->passphrase);
  if (!turn) co_return turn.error();
  auto made = co_await ports_.fscrypt.make(std::move(target), std::move(*secret), owner(volume),
                                           while_served(volume, long_deadline()));
  if (!made) co_return made;
  log::info("fscrypt.made", {{"volume", volume.id}});
  volume.facts.folder = host::EncryptedFolder::unlocked;
  co_return result<>();
}

task<result<>> FscryptSteps::unlock(Volume& volume, std::string target, const Wish& wish) {
  auto secret = co_await secret_of(volume, wish);
  if (!secret) co_return secret.error();
  const auto turn = co_await turn_for(volume, secret->passphrase);
  if (!turn) co_return turn.error();
  auto unlocked = co_await ports_.fscrypt.unlock(std::move(target), std::move(*secret), owner(volume),
                                                 while_served(volume, long_deadline()));
  if (!unlocked) co_return unlocked;
  log::info("fscrypt.unlocked", {{"volume", volume.id}});
  volume.facts.folder = host::EncryptedFolder::unlocked;
  co_return result<>();
}

/// The end of the filesystem takes the key too. So one that cannot be locked is unmounted all the same.
task<result<>> FscryptSteps::lock(Volume& volume, std::string target) {
  auto locked = co_await ports_.fscrypt.lock(std::move(target), owner(volume), while_served(volume, long_deadline()));
  if (!locked && !final_for_caller(locked.error().code)) co_return locked;
  if (locked)
    log::info("fscrypt.locked", {{"volume", volume.id}});
  else
    log::warning("fscrypt.not_locked", {{"volume", volume.id},
                                        {"error", locked.error().text},
                                        {"effect", "the key leaves the kernel with the last mount of the filesystem"}});
  volume.facts.folder.reset();
  volume.facts.folder_locked = true;
  co_return result<>();
}

}  // namespace corbd::volume
