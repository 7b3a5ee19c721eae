#include "fscrypt_keys.hpp"

#include <argon2.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <array>
#include <memory>

#include "corbd/core/text.hpp"
#include "ops.hpp"

namespace corbd::host {
namespace {

constexpr std::size_t kIvBytes = 16, kHmacBytes = 32, kSaltBytes = 16, kProtectorIdBytes = 8;

// The second recommended choice of RFC 9106. The metadata name the costs, so any others open too, up to a bound.
constexpr std::uint32_t kArgonTime = 3, kArgonMemoryKib = 64 << 10, kArgonLanes = 4;
constexpr std::int64_t kMostArgonTime = 1 << 10, kMostArgonMemoryKib = 256 << 10, kMostArgonLanes = 1 << 8;

const unsigned char* octets(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* octets(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

Error crypto_failed() { return {errc::internal, "OpenSSL refused an operation on an fscrypt key"}; }

struct Stretched {
  Secret cipher, mac;
};

/// HKDF-SHA256 without salt and info: 32 bytes for the cipher, then 32 for the HMAC.
result<Stretched> stretch(const Secret& key) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kind(EVP_KDF_fetch(nullptr, "HKDF", nullptr), &EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(kind.get()),
                                                                          &EVP_KDF_CTX_free);
  std::string digest = "SHA256", both(2 * kProtectorKeyBytes, '\0');
  const auto from = key.reveal();
  // OpenSSL only reads the parameters.
  const std::array parameters{
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<char*>(from.data()), from.size()),
      OSSL_PARAM_construct_end()};
  if (!context || EVP_KDF_derive(context.get(), octets(both), both.size(), parameters.data()) != 1)
    return crypto_failed();
  Stretched made{Secret(both.substr(0, kProtectorKeyBytes)), Secret(both.substr(kProtectorKeyBytes))};
  wipe(both);
  return made;
}

/// Encrypts and decrypts alike.
result<std::string> aes_ctr(const Secret& key, const std::string& iv, std::string_view from) {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(EVP_CIPHER_CTX_new(),
                                                                               &EVP_CIPHER_CTX_free);
  std::string into(from.size(), '\0');
  int length = 0;
  if (!cipher || EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_ctr(), nullptr, octets(key.reveal()), octets(iv)) != 1 ||
      EVP_EncryptUpdate(cipher.get(), octets(into), &length, octets(from), static_cast<int>(from.size())) != 1)
    return crypto_failed();
  return into;
}

result<std::string> hmac_of(const Secret& key, const std::string& text) {
  std::string sum(kHmacBytes, '\0');
  unsigned length = 0;
  if (HMAC(EVP_sha256(), key.reveal().data(), static_cast<int>(key.reveal().size()), octets(text), text.size(),
           octets(sum), &length) == nullptr)
    return crypto_failed();
  return sum;
}

/// Names a protector as fscrypt does: by SHA-512 of SHA-512 of its key.
result<std::string> protector_id(const Secret& key) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> first{}, second{};
  unsigned size = 0;
  if (EVP_Digest(key.reveal().data(), key.reveal().size(), first.data(), &size, EVP_sha512(), nullptr) != 1 ||
      EVP_Digest(first.data(), size, second.data(), &size, EVP_sha512(), nullptr) != 1)
    return crypto_failed();
  return hex({reinterpret_cast<const char*>(second.data()), kProtectorIdBytes});
}

/// Makes ceph-csi's raw key: 32 bytes, cut, or filled up with NUL.
Secret as_raw_key(const Secret& secret) {
  std::string key(secret.reveal());
  if (key.size() > kProtectorKeyBytes) {
    std::string cut = key.substr(0, kProtectorKeyBytes);
    wipe(key);
    return Secret(std::move(cut));
  }
  std::string filled(kProtectorKeyBytes, '\0');
  key.copy(filled.data(), key.size());
  wipe(key);
  return Secret(std::move(filled));
}

result<Secret> hash_passphrase(const Secret& passphrase, const fscrypt::Protector& protector) {
  const auto& costs = protector.costs();
  constexpr std::int64_t low_byte = 0xff;
  const auto lanes = costs.truncation_fixed() ? costs.parallelism() : costs.parallelism() & low_byte;
  if (costs.time() < 1 || costs.time() > kMostArgonTime || costs.memory() < 1 || costs.memory() > kMostArgonMemoryKib ||
      static_cast<std::uint64_t>(costs.time() * costs.memory()) > ops::kMaxHashing || lanes < 1 ||
      lanes > kMostArgonLanes || protector.salt().size() != kSaltBytes)
    return Error{errc::state_corrupt,
                 "the protector " + printable(protector.id()) + " has costs or a salt that no fscrypt writes"};
  std::string key(kProtectorKeyBytes, '\0');
  const int done =
      argon2id_hash_raw(static_cast<std::uint32_t>(costs.time()), static_cast<std::uint32_t>(costs.memory()),
                        static_cast<std::uint32_t>(lanes), passphrase.reveal().data(), passphrase.reveal().size(),
                        protector.salt().data(), protector.salt().size(), key.data(), key.size());
  if (done != ARGON2_OK)
    return Error{done == ARGON2_MEMORY_ALLOCATION_ERROR ? errc::unavailable : errc::state_corrupt,
                 "hashing the passphrase: " + std::string(argon2_error_message(done))};
  return Secret(std::move(key));
}

}  // namespace

result<Secret> make_fscrypt_key(std::size_t bytes) {
  std::string key(bytes, '\0');
  if (RAND_bytes(octets(key), static_cast<int>(key.size())) != 1) return crypto_failed();
  return Secret(std::move(key));
}

result<fscrypt::WrappedKey> wrap_fscrypt_key(const Secret& with, const Secret& key) {
  const auto keys = stretch(with);
  if (!keys) return keys.error();
  std::string iv(kIvBytes, '\0');
  if (RAND_bytes(octets(iv), static_cast<int>(iv.size())) != 1) return crypto_failed();
  auto encrypted = aes_ctr(keys->cipher, iv, key.reveal());
  if (!encrypted) return encrypted.error();
  auto sum = hmac_of(keys->mac, iv + *encrypted);
  if (!sum) return sum.error();
  fscrypt::WrappedKey wrapped;
  wrapped.set_iv(std::move(iv));
  wrapped.set_encrypted_key(std::move(*encrypted));
  wrapped.set_hmac(std::move(*sum));
  return wrapped;
}

result<Secret> unwrap_fscrypt_key(const Secret& with, const fscrypt::WrappedKey& wrapped) {
  if (wrapped.iv().size() != kIvBytes || wrapped.hmac().size() != kHmacBytes)
    return Error{errc::state_corrupt, "fscrypt's metadata have a key without an IV or HMAC"};
  const auto keys = stretch(with);
  if (!keys) return keys.error();
  const auto sum = hmac_of(keys->mac, wrapped.iv() + wrapped.encrypted_key());
  if (!sum) return sum.error();
  if (CRYPTO_memcmp(sum->data(), wrapped.hmac().data(), kHmacBytes) != 0)
    return Error{errc::unauthenticated,
                 "no protector of fscrypt opens with the secret of this volume, and nothing was changed: check "
                 "encryptionPassphrase, or the key in the KMS"};
  auto key = aes_ctr(keys->cipher, wrapped.iv(), wrapped.encrypted_key());
  if (!key) return key.error();
  return Secret(std::move(*key));
}

result<fscrypt::Protector> make_protector(const FscryptSecret& secret, const Secret& key) {
  auto id = protector_id(key);
  if (!id) return id.error();
  fscrypt::Protector protector;
  protector.set_id(std::move(*id));
  protector.set_name(kProtectorName);
  protector.set_source(secret.passphrase ? fscrypt::SOURCE_PASSPHRASE : fscrypt::SOURCE_RAW_KEY);
  if (secret.passphrase) {
    std::string salt(kSaltBytes, '\0');
    if (RAND_bytes(octets(salt), static_cast<int>(salt.size())) != 1) return crypto_failed();
    protector.set_salt(std::move(salt));
    auto& costs = *protector.mutable_costs();
    costs.set_time(kArgonTime);
    costs.set_memory(kArgonMemoryKib);
    costs.set_parallelism(kArgonLanes);
    costs.set_truncation_fixed(true);
  }
  const auto with = secret.passphrase ? hash_passphrase(secret.secret, protector) : as_raw_key(secret.secret);
  if (!with) return with.error();
  auto wrapped = wrap_fscrypt_key(*with, key);
  if (!wrapped) return wrapped.error();
  *protector.mutable_wrapped_key() = std::move(*wrapped);
  return protector;
}

result<Secret> open_protector(const fscrypt::Protector& protector, const Secret& secret) {
  const Secret cut = as_raw_key(secret);
  if (protector.source() == fscrypt::SOURCE_RAW_KEY) return unwrap_fscrypt_key(cut, protector.wrapped_key());
  if (protector.source() != fscrypt::SOURCE_PASSPHRASE)
    return Error{errc::failed_precondition, "the protector " + printable(protector.id()) +
                                                " takes neither a passphrase nor a key: ceph-csi made none such"};
  const auto opened = [&](const Secret& passphrase) -> result<Secret> {
    const auto with = hash_passphrase(passphrase, protector);
    if (!with) return with.error();
    return unwrap_fscrypt_key(*with, protector.wrapped_key());
  };
  auto key = opened(secret);
  if (key || key.error().code != errc::unauthenticated || cut == secret) return key;
  return opened(cut);
}

}  // namespace corbd::host
