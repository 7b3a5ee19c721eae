#include "azure.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <boost/json/parse.hpp>

#include "cloud_scene.hpp"
#include "corbd/core/base64.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace corbd::kms;
using namespace corbd::test;

namespace {

namespace json = boost::json;

const Secret kKey("w6XnDvKk3bO0u9pWm2Jq1rT5yZs=");

std::string pki(const std::string& name) { return read_file(tests_folder() + "/support/pki/" + name, 1 << 20).value(); }

std::string from_base64url(std::string_view text) {
  std::string padded(text);
  std::ranges::replace(padded, '-', '+');
  std::ranges::replace(padded, '_', '/');
  padded.resize((padded.size() + 3) / 4 * 4, '=');
  return from_base64(padded).value();
}

/// Whether the key of rsa.pem signed the text.
bool signed_by_rsa_pem(std::string_view text, const std::string& signature) {
  const std::string pem = pki("rsa.pem");
  BIO* from = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = PEM_read_bio_X509(from, nullptr, nullptr, nullptr);
  EVP_MD_CTX* digest = EVP_MD_CTX_new();
  EVP_DigestVerifyInit(digest, nullptr, EVP_sha256(), nullptr, X509_get0_pubkey(certificate));
  const bool good = EVP_DigestVerify(digest, reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                                     reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  EVP_MD_CTX_free(digest);
  X509_free(certificate);
  BIO_free_all(from);
  return good;
}

struct Azure : CloudScene {
  Azure() {
    ask.section["AZURE_VAULT_URL"] = "https://keys.vault.azure.net/";
    ask.section["AZURE_CLIENT_ID"] = "client";
    ask.section["AZURE_TENANT_ID"] = "tenant";
    ask.owner.volume_id = "0001-0009-rook-ceph";
    transport.secrets["ceph/ceph-csi-azure-credentials"] = {{"CLIENT_CERT", pki("rsa.pem")}};
  }
  void give_token() { answer(200, R"({"token_type":"Bearer","expires_in":3599,"access_token":"token"})"); }
  result<Stored> fetch() { return loop.run(azure::fetch(transport, ask)); }
  result<> store() { return loop.run(azure::store(transport, ask, kKey, std::nullopt)); }
  errc fetch_error(unsigned status, std::string body) {
    give_token();
    answer(status, std::move(body));
    const auto key = fetch();
    REQUIRE_FALSE(key);
    text = key.error().text;
    return key.error().code;
  }

  std::string text;
};

}  // namespace

TEST_CASE("a client of Azure proves that it has its certificate's key, with the certificate's thumbprint") {
  const auto now = std::chrono::system_clock::time_point(std::chrono::seconds(1440938160));
  // The certificate of a chain that belongs to the key is not the first.
  const auto assertion =
      azure::client_assertion(Secret(pki("ca.pem") + pki("rsa.pem")), "client", "https://login/token", now, "id");
  REQUIRE(assertion);
  const auto parts = pieces(assertion->reveal(), '.');
  REQUIRE(parts.size() == 3);
  const auto header = json::parse(from_base64url(parts[0]));
  CHECK(header.at("alg").as_string() == "RS256");
  CHECK(header.at("typ").as_string() == "JWT");
  // openssl x509 -outform der | openssl dgst -sha1 -binary
  CHECK(header.at("x5t").as_string() == "O31jF_tG1M6PohJbWY3G3kMcsUA");
  const auto claims = json::parse(from_base64url(parts[1]));
  CHECK(claims.at("aud").as_string() == "https://login/token");
  CHECK(claims.at("iss").as_string() == "client");
  CHECK(claims.at("sub").as_string() == "client");
  CHECK(claims.at("jti").as_string() == "id");
  CHECK(claims.at("nbf").to_number<std::int64_t>() == 1440938160);
  CHECK(claims.at("exp").to_number<std::int64_t>() == 1440938160 + 600);
  CHECK(signed_by_rsa_pem(std::string(parts[0]) + "." + std::string(parts[1]), from_base64url(parts[2])));
}

TEST_CASE("a client certificate for Azure without its RSA key is refused, and never shown") {
  for (const std::string& pem :
       {std::string(), std::string("canary"), pki("ca.pem"), pki("client.pem") + pki("client.key"),
        pki("ca.pem") + pki("rsa.pem").substr(pki("rsa.pem").find("-----BEGIN PRIVATE"))}) {
    const auto assertion = azure::client_assertion(Secret(pem), "client", "audience", {}, "id");
    REQUIRE_FALSE(assertion);
    CHECK(assertion.error().code == errc::failed_precondition);
    CHECK_THAT(assertion.error().text, !ContainsSubstring("canary"));
  }
}

TEST_CASE("Azure Key Vault gives the secret that has the volume's ID, for a token of Entra ID") {
  Azure azure;
  azure.give_token();
  azure.answer(200, R"({"value":"w6XnDvKk3bO0u9pWm2Jq1rT5yZs=","id":"https://keys.vault.azure.net/secrets/x/1"})");
  const auto key = azure.fetch();
  REQUIRE(key);
  REQUIRE(key->key);
  CHECK(key->key->reveal() == kKey.reveal());
  // Its newest secret is whatever arrived last.
  CHECK_FALSE(key->version);
  REQUIRE(azure.transport.requests.size() == 2);
  const auto& login = azure.transport.requests[0];
  CHECK(login.peer.text() + login.message.target == "login.microsoftonline.com:443/tenant/oauth2/v2.0/token");
  CHECK_THAT(login.message.body, ContainsSubstring("client_id=client&scope=https%3A%2F%2Fvault.azure.net%2F.default&"
                                                   "grant_type=client_credentials") &&
                                     ContainsSubstring("client_assertion=ey"));
  const auto& asked = azure.transport.requests[1];
  CHECK(asked.message.method == "GET");
  CHECK(asked.peer.text() + asked.message.target ==
        "keys.vault.azure.net:443/secrets/0001-0009-rook-ceph?api-version=7.4");
  CHECK(asked.message.bearer.reveal() == "token");
}

TEST_CASE("a key is stored in Azure Key Vault as the value of the secret that has the volume's ID") {
  Azure azure;
  azure.give_token();
  azure.answer(200, "{}");
  CHECK(azure.store());
  const auto& asked = azure.transport.requests.at(1);
  CHECK(asked.message.method + " " + asked.message.target == "PUT /secrets/0001-0009-rook-ceph?api-version=7.4");
  CHECK(asked.message.stores);
  CHECK_FALSE(azure.transport.requests.at(0).message.stores);
  CHECK(asked.message.body == R"({"value":"w6XnDvKk3bO0u9pWm2Jq1rT5yZs="})");
  azure.give_token();
  azure.answer(403, R"({"error":{"code":"Forbidden","message":"no set permission"}})");
  CHECK(azure.store().error().code == errc::permission_denied);
}

TEST_CASE("a volume without a secret in Azure Key Vault has no key, which is no error") {
  Azure azure;
  azure.give_token();
  azure.answer(404, R"({"error":{"code":"SecretNotFound","message":"not found"}})");
  const auto key = azure.fetch();
  REQUIRE(key);
  CHECK_FALSE(key->key);
  // Another 404, such as a proxy's, says nothing about the secret.
  CHECK(azure.fetch_error(404, "<html>") == errc::failed_precondition);
}

TEST_CASE("a refusal of Azure Key Vault is told with its code and words") {
  Azure azure;
  CHECK(azure.fetch_error(403, R"({"error":{"code":"Forbidden","message":"Access denied to first party service"}})") ==
        errc::permission_denied);
  CHECK_THAT(azure.text, ContainsSubstring("Access denied to first party service") && !ContainsSubstring("token"));
  CHECK(azure.fetch_error(401, R"({"error":{"code":"Unauthorized"}})") == errc::unauthenticated);
  CHECK(azure.fetch_error(429, R"({"error":{"code":"Throttled"}})") == errc::unavailable);
}

TEST_CASE("a write to a secret that somebody deleted in Azure Key Vault is refused with the vault's words") {
  Azure azure;
  azure.give_token();
  azure.answer(409, R"({"error":{"code":"Conflict","message":"Secret x is in a deleted but recoverable state"}})");
  const auto stored = azure.store();
  REQUIRE_FALSE(stored);
  CHECK(stored.error().code == errc::failed_precondition);
  CHECK_THAT(stored.error().text, ContainsSubstring("Conflict: Secret x is in a deleted but recoverable state"));
}

TEST_CASE("a client that Entra ID does not know is told with its reason") {
  Azure azure;
  azure.answer(400, R"({"error":"invalid_client","error_description":"AADSTS700027: key not registered"})");
  const auto key = azure.fetch();
  CHECK(key.error().code == errc::unauthenticated);
  CHECK_THAT(key.error().text,
             ContainsSubstring("AADSTS700027") && ContainsSubstring("Secret ceph/ceph-csi-azure-credentials"));
}

TEST_CASE("an answer of Azure Key Vault that is cut, or of another shape, is no key") {
  for (const char* body : {R"({"value":"w6Xn)", "[]", "{}", R"({"value":{}})", R"({"value":""})"}) {
    Azure azure;
    CHECK(azure.fetch_error(200, body) == errc::unavailable);
  }
}

TEST_CASE("a vault in a sovereign cloud of Azure is reached with that cloud's tokens") {
  Azure azure;
  azure.ask.section["AZURE_VAULT_URL"] = "https://keys.vault.azure.cn";
  CHECK_FALSE(azure.fetch());
  CHECK(azure.transport.requests.at(0).peer.host == "login.chinacloudapi.cn");
  CHECK_THAT(azure.transport.requests[0].message.body,
             ContainsSubstring("scope=https%3A%2F%2Fvault.azure.cn%2F.default"));
}

TEST_CASE("the settings of Azure Key Vault that cannot be used are named") {
  const Azure azure;
  CHECK(azure::check(azure.ask.section, "mine"));
  for (const char* key : {"AZURE_VAULT_URL", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"}) {
    auto section = azure.ask.section;
    section.erase(key);
    CHECK_THAT(azure::check(section, "mine").error().text, ContainsSubstring(key));
  }
  auto section = azure.ask.section;
  for (const char* url : {"keys.vault.azure.net", "http://keys.vault.azure.net", "https://localhost"}) {
    section["AZURE_VAULT_URL"] = url;
    CHECK_THAT(azure::check(section, "mine").error().text, ContainsSubstring("AZURE_VAULT_URL"));
  }
}
