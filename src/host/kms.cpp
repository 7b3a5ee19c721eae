#include "corbd/host/kms.hpp"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <memory>

#include "corbd/core/base64.hpp"
#include "corbd/core/file.hpp"

namespace corbd::host {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxConfigFile = 4 << 20;  // more than a ConfigMap can hold
constexpr int kTagBytes = 16, kNonceBytes = 12, kKeyBytes = 32, kNewKeyBytes = 20;
using Bytes = std::vector<unsigned char>;

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* cipher) const { EVP_CIPHER_CTX_free(cipher); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

const unsigned char* bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

/// Of ceph-csi's ids: enough to be named in a text.
std::string shown(std::string_view text) {
  std::string plain(text.substr(0, 64));
  for (char& c : plain)
    if (c < 0x20 || c > 0x7e) c = '?';
  return plain;
}

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

std::string type_of(const json::object& section) {
  for (const char* key : {"encryptionKMSType", "KMS_PROVIDER"})
    if (const auto* type = section.if_contains(key); type != nullptr && type->is_string())
      return std::string(type->get_string());
  return {};
}

result<KmsKind> kind_of(const json::object& section, const std::string& id) {
  const std::string type = type_of(section);
  if (type == "default") return KmsKind::shared;
  if (type == "metadata" && section.contains("secretName"))
    return Error{errc::unimplemented,
                 "KMS \"" + id +
                     "\" of type metadata takes its passphrase from a Secret of its own (secretName), which is not "
                     "served yet: put encryptionPassphrase into the node-stage secret"};
  if (type == "metadata") return KmsKind::per_volume;
  if (type.empty())
    return Error{errc::failed_precondition,
                 "KMS \"" + id + "\" has neither encryptionKMSType nor KMS_PROVIDER in the KMS config"};
  return Error{errc::unimplemented,
               "KMS \"" + id + "\" is of type " + shown(type) + ", which is not served: use default or metadata"};
}

class FileKms final : public Kms {
 public:
  FileKms(BlockingPool& pool, std::string config_dir) : pool_(pool), file_(std::move(config_dir) + "/config.json") {}

  result<KmsKind> kind(const std::string& kms_id) const override {
    if (kms_id == "default") return KmsKind::shared;
    const auto text = read_file(file_, kMaxConfigFile);
    if (!text && text.error().code == errc::not_found)
      return Error{errc::failed_precondition, file_ + ", which must tell of KMS \"" + shown(kms_id) +
                                                  "\", does not exist: mount the ConfigMap there"};
    if (!text) return text.error();
    auto kind = kms_kind(*text, kms_id);
    if (!kind) return with_context("in " + file_, kind.error());
    return kind;
  }
  task<result<Secret>> unwrap(std::string volume_id, std::string wrapped, Secret passphrase, Until until) override {
    auto job = [volume_id, wrapped, passphrase] { return unwrap_key(volume_id, wrapped, passphrase); };
    co_return co_await pool_.run(std::move(job), until, "unwrapping the key of volume " + volume_id);
  }
  task<result<std::string>> wrap(std::string volume_id, Secret key, Secret passphrase, Until until) override {
    auto job = [volume_id, key, passphrase] { return wrap_key(volume_id, key, passphrase); };
    co_return co_await pool_.run(std::move(job), until, "wrapping the key of volume " + volume_id);
  }

 private:
  BlockingPool& pool_;
  std::string file_;
};

}  // namespace

result<KmsKind> kms_kind(std::string_view config, std::string_view kms_id) {
  boost::system::error_code failed;
  const auto value = json::parse(json::string_view(config.data(), config.size()), failed);
  if (failed || !value.is_object())
    return Error{errc::failed_precondition, "the KMS config is no JSON object: correct it in the ConfigMap"};
  const auto& all = value.get_object();
  const auto* section = all.if_contains(json::string_view(kms_id.data(), kms_id.size()));
  const std::string id = shown(kms_id);
  if (section != nullptr && section->is_object()) return kind_of(section->get_object(), id);
  if (section != nullptr)
    return Error{errc::failed_precondition, "KMS \"" + id + "\" in the KMS config is no JSON object"};
  std::string others;
  for (const auto& entry : all) others += (others.empty() ? "" : ", ") + shown(entry.key());
  return Error{errc::failed_precondition,
               "the KMS config has no \"" + id + "\"; it has: " + (others.empty() ? "nothing" : others)};
}

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
    return Error{errc::unauthenticated, "the passphrase in the node-stage secret does not open the key of volume " +
                                            shown(volume_id) + " that the image's metadata holds; nothing was changed"};
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

std::unique_ptr<Kms> make_kms(BlockingPool& pool, std::string config_dir) {
  return std::make_unique<FileKms>(pool, std::move(config_dir));
}

}  // namespace corbd::host
