#include "wrapped_key.hpp"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <memory>

#include "corbd/core/base64.hpp"
#include "corbd/core/text.hpp"
#include "corbd/kms/kms.hpp"

namespace corbd::kms {
namespace {

namespace json = boost::json;

constexpr int kTagBytes = 16, kNonceBytes = 12, kKeyBytes = 32, kNewKeyBytes = 20;
using Bytes = std::vector<unsigned char>;

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* cipher) const { EVP_CIPHER_CTX_free(cipher); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

const unsigned char* bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

std::string encode_base64(const unsigned char* from, std::size_t size) {
  return to_base64({reinterpret_cast<const char*>(from), size});
}

std::optional<Bytes> decode_base64(std::string_view text) {
  const auto decoded = from_base64(text);
  if (!decoded) return std::nullopt;
  return Bytes(decoded->begin(), decoded->end());
}

Error broken() { return {errc::internal, "OpenSSL refused an operation on a volume key"}; }

/// scrypt with the parameters of ceph-csi's secretskms.go.
result<Secret> wrapping_key(const Secret& passphrase, std::string_view volume_id) {
  constexpr std::uint64_t n = 32768, r = 8, p = 1, memory = 64 << 20;
  std::string key(kKeyBytes, '\0');
  const auto text = passphrase.reveal();
  const int done = EVP_PBE_scrypt(text.data(), text.size(), bytes(volume_id), volume_id.size(), n, r, p, memory,
                                  reinterpret_cast<unsigned char*>(key.data()), key.size());
  if (done != 1) return broken();
  return Secret(std::move(key));
}

struct Wrapped {
  Bytes key, nonce;  ///< key: with GCM's tag at its end
};

result<Wrapped> parse_wrapped(std::string_view text) {
  const Error wrong{errc::state_corrupt,
                    "the volume key in the image's metadata is not what ceph-csi's metadata KMS writes"};
  boost::system::error_code failed;
  const auto value = json::parse(json::string_view(text.data(), text.size()), failed);
  if (failed || !value.is_object()) return wrong;
  const auto member = [&](const char* name) -> std::optional<Bytes> {
    const auto* found = value.get_object().if_contains(name);
    if (found == nullptr || !found->is_string()) return std::nullopt;
    return decode_base64(found->get_string());
  };
  auto key = member("dek"), nonce = member("nonce");
  if (!key || !nonce || key->size() < kTagBytes || nonce->size() != kNonceBytes) return wrong;
  return Wrapped{std::move(*key), std::move(*nonce)};
}

}  // namespace

result<Secret> unwrap_key(std::string_view volume_id, std::string_view wrapped, const Secret& passphrase) {
  const auto from = parse_wrapped(wrapped);
  if (!from) return from.error();
  const auto key = wrapping_key(passphrase, volume_id);
  if (!key) return key.error();
  const auto size = from->key.size() - kTagBytes;
  Bytes tag(from->key.begin() + static_cast<std::ptrdiff_t>(size), from->key.end());
  std::string plain(size, '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0, rest = 0;
  if (!cipher ||
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes(key->reveal()), from->nonce.data()) != 1 ||
      EVP_DecryptUpdate(cipher.get(), reinterpret_cast<unsigned char*>(plain.data()), &length, from->key.data(),
                        static_cast<int>(size)) != 1 ||
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) != 1)
    return broken();
  Secret unwrapped(std::move(plain));
  std::array<unsigned char, kTagBytes> nothing{};
  if (EVP_DecryptFinal_ex(cipher.get(), nothing.data(), &rest) != 1)
    return Error{errc::unauthenticated, "the passphrase does not open the key of volume " + printable(volume_id) +
                                            " in the image's metadata; nothing was changed"};
  return unwrapped;
}

result<std::string> wrap_key(std::string_view volume_id, const Secret& key, const Secret& passphrase) {
  const auto with = wrapping_key(passphrase, volume_id);
  if (!with) return with.error();
  std::array<unsigned char, kNonceBytes> nonce{};
  const auto plain = key.reveal();
  Bytes sealed(plain.size() + kTagBytes);
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0, rest = 0;
  if (!cipher || RAND_bytes(nonce.data(), nonce.size()) != 1 ||
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes(with->reveal()), nonce.data()) != 1 ||
      EVP_EncryptUpdate(cipher.get(), sealed.data(), &length, bytes(plain), static_cast<int>(plain.size())) != 1 ||
      EVP_EncryptFinal_ex(cipher.get(), sealed.data() + length, &rest) != 1 ||
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, sealed.data() + plain.size()) != 1)
    return broken();
  return json::serialize(json::object{{"dek", encode_base64(sealed.data(), sealed.size())},
                                      {"nonce", encode_base64(nonce.data(), nonce.size())}});
}

result<Secret> make_volume_key() {
  std::array<unsigned char, kNewKeyBytes> random{};
  if (RAND_bytes(random.data(), random.size()) != 1) return broken();
  std::string text = encode_base64(random.data(), random.size());
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  return Secret(std::move(text));
}

}  // namespace corbd::kms
