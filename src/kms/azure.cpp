#include "azure.hpp"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>

#include "corbd/core/base64.hpp"
#include "corbd/core/secret_json.hpp"
#include "json_answer.hpp"
#include "section.hpp"
#include "service.hpp"

namespace corbd::kms::azure {
namespace {

namespace json = boost::json;

constexpr const char* kAzureApi = "?api-version=7.4";

struct AzureVault {
  http::Peer peer;
  std::string path;       ///< the path before /secrets
  std::string scope;      ///< scope of the token
  std::string authority;  ///< host that issues the token
  std::string client, tenant;
};

result<AzureVault> azure_vault(const Section& section, const std::string& id) {
  struct Cloud {
    std::string_view vaults, authority;
  };
  // azidentity's clouds; a vault elsewhere counts as one of the public cloud.
  constexpr std::array clouds{Cloud{".vault.azure.cn", "login.chinacloudapi.cn"},
                              Cloud{".vault.usgovcloudapi.net", "login.microsoftonline.us"}};
  const auto text = needed_option(section, "AZURE_VAULT_URL", id);
  if (!text) return text.error();
  auto url = parse_url(*text);
  const auto dot = url ? url->peer.host.find('.') : std::string::npos;
  if (dot == std::string::npos || !url->peer.tls)
    return Error{errc::failed_precondition, "KMS \"" + id +
                                                "\": AZURE_VAULT_URL is not the URL of a vault, such as "
                                                "https://NAME.vault.azure.net: correct it in the KMS config"};
  auto client = needed_option(section, "AZURE_CLIENT_ID", id);
  if (!client) return client.error();
  auto tenant = needed_option(section, "AZURE_TENANT_ID", id);
  if (!tenant) return tenant.error();
  const std::string domain = url->peer.host.substr(dot);
  const auto* cloud = std::ranges::find(clouds, domain, &Cloud::vaults);
  const std::string_view authority = cloud == clouds.end() ? "login.microsoftonline.com" : cloud->authority;
  return AzureVault{std::move(url->peer),   std::move(url->path), "https://" + domain.substr(1) + "/.default",
                    std::string(authority), std::move(*client),   std::move(*tenant)};
}

// --- the client's assertion

template <auto function>
struct Frees {
  template <class T>
  void operator()(T* object) const {
    function(object);
  }
};
using Bio = std::unique_ptr<BIO, Frees<BIO_free_all>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Frees<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Frees<X509_free>>;
using Digest = std::unique_ptr<EVP_MD_CTX, Frees<EVP_MD_CTX_free>>;

std::string to_base64url(std::string_view bytes) {
  std::string text = to_base64(bytes);
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  text.erase(text.find_last_not_of('=') + 1);
  return text;
}

int no_password(char*, int, int, void*) { return -1; }  // prevents a question on the terminal

/// Returns the first RSA key.
PrivateKey private_key(const Secret& pem) {
  const Bio from(BIO_new_mem_buf(pem.reveal().data(), static_cast<int>(pem.reveal().size())));
  PrivateKey key(from ? PEM_read_bio_PrivateKey(from.get(), nullptr, no_password, nullptr) : nullptr);
  if (key && EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_RSA) key.reset();
  return key;
}

/// Returns the certificate of that key: the text may contain a chain.
Certificate certificate_of(const Secret& pem, EVP_PKEY* key) {
  const Bio from(BIO_new_mem_buf(pem.reveal().data(), static_cast<int>(pem.reveal().size())));
  while (from) {
    Certificate found(PEM_read_bio_X509(from.get(), nullptr, no_password, nullptr));
    if (!found || X509_check_private_key(found.get(), key) == 1) return found;
  }
  return nullptr;
}

std::string thumbprint(const X509* certificate) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned length = 0;
  X509_digest(certificate, EVP_sha1(), reinterpret_cast<unsigned char*>(digest.data()), &length);
  digest.resize(length);
  return digest;
}

/// Signs with RS256. Empty if OpenSSL refuses.
std::string rs256(EVP_PKEY* key, std::string_view text) {
  const Digest digest(EVP_MD_CTX_new());
  const auto* bytes_of_text = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t length = 0;
  if (!digest || EVP_DigestSignInit(digest.get(), nullptr, EVP_sha256(), nullptr, key) != 1 ||
      EVP_DigestSign(digest.get(), nullptr, &length, bytes_of_text, text.size()) != 1)
    return {};
  std::string signature(length, '\0');
  if (EVP_DigestSign(digest.get(), reinterpret_cast<unsigned char*>(signature.data()), &length, bytes_of_text,
                     text.size()) != 1)
    return {};
  signature.resize(length);
  return signature;
}

// --- the calls

result<Secret> entra_token_in(const http::Reply& reply, const Call& call) {
  return access_token(reply, call,
                      error_text(words_at(reply.body, {"error"}), words_at(reply.body, {"error_description"})));
}

/// Reads {"error": {"code": ..., "message": ...}}.
std::string vault_said(const http::Reply& reply) {
  return error_text(words_at(reply.body, {"error", "code"}), words_at(reply.body, {"error", "message"}));
}

result<Stored> vault_secret_in(const http::Reply& reply, const Call& call) {
  if (reply.status == 404 && words_at(reply.body, {"error", "code"}) == "SecretNotFound") return Stored{};
  if (reply.status != 200) return refusal(call, refusal_code(reply.status), reply.status, vault_said(reply));
  auto key = json_text(reply.body, {"value"});
  if (!key || key->empty()) return wrong_shape(call);
  return Stored{std::move(key)};
}

result<> vault_write_in(const http::Reply& reply, const Call& call) {
  if (reply.status / 100 == 2) return {};
  return refusal(call, refusal_code(reply.status), reply.status, vault_said(reply));
}

task<result<Secret>> entra_token(Transport& transport, KeyCall ask, AzureVault vault, Credentials own,
                                 std::string doing) {
  const auto pem = own.need("CLIENT_CERT", doing);
  if (!pem) co_return pem.error();
  std::string id(16, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(id.data()), static_cast<int>(id.size())) != 1)
    co_return Error{errc::internal, doing + ": OpenSSL has no random bytes"};
  http::Message message;
  message.method = "POST";
  message.target = "/" + form_encoded({{"", vault.tenant}}) + "/oauth2/v2.0/token";
  const std::string audience = "https://" + vault.authority + message.target;
  auto sign = [pem = *pem, client = vault.client, audience, now = transport.now(), id = to_base64url(id)] {
    return client_assertion(pem, client, audience, now, id);
  };
  const auto assertion = co_await transport.compute("signing a login", std::move(sign), ask.until);
  if (!assertion) co_return with_context(doing + ": CLIENT_CERT in " + own.where, assertion.error());
  message.headers = {{"Content-Type", "application/x-www-form-urlencoded"}, {"Accept", "application/json"}};
  message.limit = kAnswerBytes;
  message.body = form_encoded({{"client_id", vault.client},
                               {"scope", vault.scope},
                               {"grant_type", "client_credentials"},
                               {"client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
                               {"client_assertion", assertion->reveal()}});
  http::Peer peer;
  peer.host = vault.authority;
  auto reply = co_await transport.http(peer, std::move(message), ask.until);
  if (!reply) co_return with_context(doing, reply.error());
  co_return co_await transport.read(std::move(*reply), ask.until, entra_token_in, call_of(ask, doing, peer, own.where));
}

/// Makes a request about the volume's secret. Empty `body`: GET.
template <class R>
task<R> ask_vault(Transport& transport, KeyCall ask, std::string method, std::string body, std::string doing,
                  R (*reader)(const http::Reply&, const Call&)) {
  const auto vault = azure_vault(ask.section, ask.kms_id);
  if (!vault) co_return vault.error();
  const auto own =
      co_await own_credentials(transport, ask, "AZURE_CERT_SECRET_NAME", "ceph-csi-azure-credentials", doing);
  if (!own) co_return own.error();
  auto token = co_await entra_token(transport, ask, *vault, *own, doing);
  if (!token) co_return token.error();
  http::Message message;
  message.method = method;
  message.stores = method == "PUT";
  message.target = vault->path + "/secrets/" + form_encoded({{"", ask.owner.volume_id}}) + kAzureApi;
  message.headers = {{"Accept", "application/json"}};
  if (!body.empty()) message.headers.emplace_back("Content-Type", "application/json");
  message.bearer = std::move(*token);
  message.body = std::move(body);
  message.limit = kAnswerBytes;
  auto reply = co_await transport.http(vault->peer, std::move(message), ask.until);
  if (!reply) co_return with_context(doing, reply.error());
  co_return co_await transport.read(std::move(*reply), ask.until, reader, call_of(ask, doing, vault->peer, own->where));
}

}  // namespace

result<Secret> client_assertion(const Secret& pem, const std::string& client, const std::string& audience,
                                std::chrono::system_clock::time_point now, const std::string& id) {
  constexpr std::int64_t lifetime = 600;
  const PrivateKey key = private_key(pem);
  const Certificate certificate = key ? certificate_of(pem, key.get()) : nullptr;
  // Errors left in OpenSSL's queue must not be taken for a TLS connection's.
  ERR_clear_error();
  if (!certificate)
    return Error{errc::failed_precondition,
                 "it has not an RSA key without a password and its certificate, both in PEM: "
                 "convert a PKCS#12 file with \"openssl pkcs12 -nodes\""};
  const std::int64_t seconds = std::chrono::system_clock::to_time_t(now);
  const json::object header{{"alg", "RS256"}, {"typ", "JWT"}, {"x5t", to_base64url(thumbprint(certificate.get()))}};
  const json::object claims{
      {"aud", audience}, {"exp", seconds + lifetime}, {"iss", client}, {"jti", id}, {"nbf", seconds}, {"sub", client}};
  const std::string text = to_base64url(serialize_secret(header)) + "." + to_base64url(serialize_secret(claims));
  const std::string signature = rs256(key.get(), text);
  if (signature.empty()) return Error{errc::internal, "OpenSSL refused to sign with its key"};
  return Secret(text + "." + to_base64url(signature));
}

result<> check(const Section& section, const std::string& id) {
  if (const auto vault = azure_vault(section, id); !vault) return vault.error();
  if (const auto name = text_option(section, "AZURE_CERT_SECRET_NAME", id); !name) return name.error();
  return {};
}

task<result<Stored>> fetch(Transport& transport, KeyCall ask) {
  co_return co_await ask_vault(transport, ask, "GET", "", about(ask, "fetching"), vault_secret_in);
}

task<result<>> store(Transport& transport, KeyCall ask, Secret key, std::optional<std::uint64_t>) {
  json::object value{{"value", json_view(key)}};
  std::string body = serialize_secret(value);
  wipe(value);
  co_return co_await ask_vault(transport, ask, "PUT", std::move(body), about(ask, "storing"), vault_write_in);
}

}  // namespace corbd::kms::azure
