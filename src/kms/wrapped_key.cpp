#include "wrapped_key.hpp"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <array>
#include <memory>

#include "corbd/core/base64.hpp"
#include "corbd/core/secret_json.hpp"
#include "corbd/core/text.hpp"
#include "corbd/kms/kms.hpp"
#include "json_answer.hpp"

namespace corbd::kms {
namespace {

namespace json = boost::json;

constexpr int kTagBytes = 16, kNonceBytes = 12, kKeyBytes = 32;

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* cipher) const { EVP_CIPHER_CTX_free(cipher); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

const unsigned char* bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

Error broken() { return {errc::internal, "OpenSSL refused an operation on a volume key"}; }

/// Chooses the cipher by the length of the key; null for any other length.
const EVP_CIPHER* aes_gcm(const Secret& key) {
  switch (key.reveal().size()) {
    case 16:
      return EVP_aes_128_gcm();
    case 24:
      return EVP_aes_192_gcm();
    case 32:
      return EVP_aes_256_gcm();
    default:
      return nullptr;
  }
}

Error no_aes_key() {
  return {errc::failed_precondition, "the key that wraps volume keys has not 128, 192 or 256 bits: it is no AES key"};
}

/// Derives the key by scrypt with the parameters of ceph-csi's secretskms.go.
result<Secret> wrapping_key(const Secret& passphrase, std::string_view volume_id) {
  constexpr std::uint64_t n = 32768, r = 8, p = 1, memory = 64 << 20;
  std::string key(kKeyBytes, '\0');
  const auto text = passphrase.reveal();
  const int done = EVP_PBE_scrypt(text.data(), text.size(), bytes(volume_id), volume_id.size(), n, r, p, memory,
                                  bytes(key), key.size());
  if (done != 1) return broken();
  return Secret(std::move(key));
}

Error no_wrapped_key() {
  return {errc::state_corrupt, "the volume key in the image's metadata is not what ceph-csi writes there"};
}

}  // namespace

result<WrappedKey> parse_wrapped_key(std::string_view text) {
  const auto value = JsonAnswer::parse(text);
  const auto member = [&](std::string_view name) -> std::optional<std::string> {
    const auto* found = value.find(name);
    if (found == nullptr || found->is != JsonAnswer::Is::text) return std::nullopt;
    return from_base64(found->text);
  };
  auto dek = member("dek"), nonce = member("nonce");
  if (!dek || !nonce) return no_wrapped_key();
  return WrappedKey{std::move(*dek), std::move(*nonce)};
}

std::string text_of(const WrappedKey& wrapped) {
  return serialize_secret(json::object{{"dek", to_base64(wrapped.dek)}, {"nonce", to_base64(wrapped.nonce)}});
}

result<Secret> open_key(const WrappedKey& wrapped, const Secret& with) {
  const auto* aes = aes_gcm(with);
  if (aes == nullptr) return no_aes_key();
  if (wrapped.dek.size() < kTagBytes || wrapped.nonce.size() != kNonceBytes) return no_wrapped_key();
  const auto size = wrapped.dek.size() - kTagBytes;
  std::string tag = wrapped.dek.substr(size), plain(size, '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0, rest = 0;
  if (!cipher || EVP_DecryptInit_ex(cipher.get(), aes, nullptr, bytes(with.reveal()), bytes(wrapped.nonce)) != 1 ||
      EVP_DecryptUpdate(cipher.get(), bytes(plain), &length, bytes(wrapped.dek), static_cast<int>(size)) != 1 ||
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) != 1)
    return broken();
  Secret opened(std::move(plain));
  std::array<unsigned char, kTagBytes> nothing{};
  if (EVP_DecryptFinal_ex(cipher.get(), nothing.data(), &rest) != 1)
    return Error{errc::unauthenticated,
                 "another key wrapped the volume key in the image's metadata, or it is damaged; "
                 "nothing was changed"};
  return opened;
}

result<WrappedKey> seal_key(const Secret& key, const Secret& with) {
  const auto* aes = aes_gcm(with);
  if (aes == nullptr) return no_aes_key();
  const auto plain = key.reveal();
  WrappedKey sealed{std::string(plain.size() + kTagBytes, '\0'), std::string(kNonceBytes, '\0')};
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0, rest = 0;
  if (!cipher || RAND_bytes(bytes(sealed.nonce), kNonceBytes) != 1 ||
      EVP_EncryptInit_ex(cipher.get(), aes, nullptr, bytes(with.reveal()), bytes(sealed.nonce)) != 1 ||
      EVP_EncryptUpdate(cipher.get(), bytes(sealed.dek), &length, bytes(plain), static_cast<int>(plain.size())) != 1 ||
      EVP_EncryptFinal_ex(cipher.get(), bytes(sealed.dek) + length, &rest) != 1 ||
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, sealed.dek.data() + plain.size()) != 1)
    return broken();
  return sealed;
}

result<Secret> unwrap_key(std::string_view volume_id, std::string_view wrapped, const Secret& passphrase) {
  const auto from = parse_wrapped_key(wrapped);
  if (!from) return from.error();
  const auto with = wrapping_key(passphrase, volume_id);
  if (!with) return with.error();
  auto key = open_key(*from, *with);
  if (!key && key.error().code == errc::unauthenticated)
    return Error{errc::unauthenticated, "the passphrase does not open the key of volume " + printable(volume_id) +
                                            " in the image's metadata; nothing was changed"};
  return key;
}

result<std::string> wrap_key(std::string_view volume_id, const Secret& key, const Secret& passphrase) {
  const auto with = wrapping_key(passphrase, volume_id);
  if (!with) return with.error();
  const auto sealed = seal_key(key, *with);
  if (!sealed) return sealed.error();
  return text_of(*sealed);
}

result<Secret> make_volume_key(std::size_t count) {
  std::string random(count, '\0');
  for (;;) {
    if (RAND_bytes(bytes(random), static_cast<int>(count)) != 1) return broken();
    Secret text(to_base64(random));
    // The text must be base64 and base64url at once: ceph-csi makes base64url, and Key Protect wraps only base64. Two
    // of five are, and one of fifteen of 64 bytes.
    if (text.reveal().find_first_of("+/") != std::string_view::npos) continue;
    wipe(random);
    return text;
  }
}

}  // namespace corbd::kms
