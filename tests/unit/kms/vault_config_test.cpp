// How ceph-csi's keys for Vault are read, which decides under which path a key is found.
#include "vault_config.hpp"

#include <boost/json/parse.hpp>

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::kms;
using vault::Login;

namespace {

Section section(std::string_view text) { return boost::json::parse(text).as_object(); }

vault::Settings settings(Login login, std::string_view text) {
  const auto read = vault::read_settings(login, section(text), "v");
  if (!read) FAIL(read.error().text);
  return *read;
}

std::string text_of(Login login, std::string_view text) {
  const auto read = vault::read_settings(login, section(text), "v");
  REQUIRE_FALSE(read);
  CHECK(read.error().code == errc::failed_precondition);
  return read.error().text;
}

constexpr std::string_view kAddress = R"({"vaultAddress": "https://vault:8200"})";

}  // namespace

TEST_CASE("a section with only an address means ceph-csi's defaults") {
  const auto read = settings(Login::pod, kAddress);
  CHECK(read.backend_path == "secret/");
  CHECK(read.backend.empty());
  CHECK(read.auth_mount == "kubernetes");
  CHECK(read.role == "csi-kubernetes");
  CHECK(read.verify);
  const auto tenants = settings(Login::tenant_account, kAddress);
  CHECK(tenants.tenant_config == "ceph-csi-kms-config");
  CHECK(tenants.tenant_account == "ceph-csi-vault-sa");
  CHECK(settings(Login::token, kAddress).tenant_token == "ceph-csi-kms-token");
}

TEST_CASE("a key's path in Vault is the one that ceph-csi's library makes") {
  vault::Settings read;
  CHECK(vault::key_path(read, true, "id") == "secret/data/id");
  CHECK(vault::key_path(read, false, "id") == "secret/id");
  read.backend_path = "kv";
  read.name_space = "ns1/ns2/";
  read.passphrase_path = "ceph-csi/";
  CHECK(vault::key_path(read, true, "id") == "ns1/ns2/kv/data/ceph-csi/id");
  CHECK(vault::key_path(read, false, "a/../id") == "ns1/ns2/kv/ceph-csi/id");
}

TEST_CASE("ceph-csi's example of type vault is read") {
  const auto read = settings(Login::pod, R"({"encryptionKMSType": "vault",
      "vaultAddress": "http://vault.default.svc.cluster.local:8200", "vaultAuthPath": "/v1/auth/kubernetes/login",
      "vaultRole": "csi-kubernetes", "vaultBackend": "kv-v2", "vaultDestroyKeys": "true",
      "vaultPassphraseRoot": "/v1/secret", "vaultPassphrasePath": "ceph-csi/", "vaultCAVerify": "false"})");
  CHECK(vault::key_path(read, true, "id") == "secret/data/ceph-csi/id");
  CHECK_FALSE(read.verify);
  CHECK(read.backend == "kv-v2");
}

TEST_CASE("the login's mount is what stands between auth and login in its path") {
  CHECK(vault::auth_mount_of("/v1/auth/kubernetes/login") == "kubernetes");
  CHECK(vault::auth_mount_of("/v1/auth/cluster/one/login") == "cluster/one");
  CHECK(vault::auth_mount_of("my-cluster") == "my-cluster");
}

TEST_CASE("a section of Vault's own names is read as ceph-csi translates it, and its other keys mean nothing") {
  const auto read = settings(Login::token, R"({"KMS_PROVIDER": "vaulttokens", "VAULT_ADDR": "http://vault:8200",
      "VAULT_BACKEND_PATH": "mine", "VAULT_BACKEND": "kv", "VAULT_CACERT": "ca", "VAULT_CLIENT_CERT": "cert",
      "VAULT_CLIENT_KEY": "key", "VAULT_NAMESPACE": "team", "VAULT_SKIP_VERIFY": "true",
      "VAULT_TLS_SERVER_NAME": "vault.example", "vaultAddress": "http://other", "tenantTokenName": "other"})");
  CHECK(read.address == "http://vault:8200");
  CHECK(read.backend_path == "mine");
  CHECK(read.ca_secret == "ca");
  CHECK(read.certificate_secret == "cert");
  CHECK(read.key_secret == "key");
  CHECK(read.name_space == "team");
  CHECK(read.auth_namespace == "team");
  CHECK(read.server_name == "vault.example");
  CHECK_FALSE(read.verify);
  CHECK(read.tenant_token == "ceph-csi-kms-token");
}

TEST_CASE("the error for a section names the key that is missing or wrong, and its KMS") {
  CHECK_THAT(text_of(Login::pod, "{}"), ContainsSubstring("vaultAddress") && ContainsSubstring("\"v\""));
  CHECK_THAT(text_of(Login::token, R"({"KMS_PROVIDER": "vaulttokens", "vaultAddress": "https://vault"})"),
             ContainsSubstring("vaultAddress"));
  CHECK_THAT(text_of(Login::pod, R"({"vaultAddress": "vault:8200"})"), ContainsSubstring("https://HOST:PORT"));
  CHECK_THAT(text_of(Login::pod, R"({"vaultAddress": "https://vault", "vaultCAVerify": true})"),
             ContainsSubstring("vaultCAVerify"));
  CHECK_THAT(text_of(Login::pod, R"({"vaultAddress": "https://vault", "vaultCAVerify": "yes"})"),
             ContainsSubstring("vaultCAVerify"));
  CHECK_THAT(text_of(Login::token, R"({"KMS_PROVIDER": "v", "VAULT_ADDR": "https://vault", "VAULT_SKIP_VERIFY": ""})"),
             ContainsSubstring("VAULT_SKIP_VERIFY"));
  CHECK_THAT(text_of(Login::pod, R"({"vaultAddress": "https://vault", "vaultRole": ""})"),
             ContainsSubstring("vaultRole"));
}

TEST_CASE("a tenant's ConfigMap changes the connection, and nothing that is not the tenant's") {
  auto read = settings(Login::token, R"({"vaultAddress": "https://vault", "vaultBackendPath": "shared"})");
  REQUIRE(vault::apply_tenant(Login::token,
                              {{"vaultAddress", "https://mine"},
                               {"vaultCAVerify", "false"},
                               {"vaultBackendPath", "own"},
                               {"vaultCAFromSecret", "ca"},
                               {"tenantTokenName", "other"},
                               {"vaultRole", "admin"}},
                              "v", read));
  CHECK(read.address == "https://mine");
  CHECK_FALSE(read.verify);
  CHECK(read.backend_path == "own");
  CHECK(read.ca_secret.empty());
  CHECK(read.tenant_token == "ceph-csi-kms-token");
  CHECK(read.role == "csi-kubernetes");
}

TEST_CASE("a tenant with a service account may choose it, its role and its login") {
  auto read = settings(Login::tenant_account, kAddress);
  REQUIRE(vault::apply_tenant(
      Login::tenant_account,
      {{"tenantSAName", "mine"}, {"vaultRole", "team"}, {"vaultAuthPath", "/v1/auth/east/login"}}, "v", read));
  CHECK(read.tenant_account == "mine");
  CHECK(read.role == "team");
  CHECK(read.auth_mount == "east");
}

TEST_CASE("a tenant's namespace in Vault is also where it logs in, unless the section keeps the two apart") {
  const auto login_of = [](std::string_view text, const std::map<std::string, std::string>& theirs) {
    auto read = settings(Login::token, text);
    REQUIRE(vault::apply_tenant(Login::token, theirs, "v", read));
    return read.auth_namespace;
  };
  const std::map<std::string, std::string> team{{"vaultNamespace", "team"}};
  CHECK(login_of(kAddress, team) == "team");
  CHECK(login_of(R"({"vaultAddress": "https://v", "vaultNamespace": "all"})", team) == "team");
  CHECK(login_of(R"({"vaultAddress": "https://v", "vaultAuthNamespace": "all"})", team) == "all");
  CHECK(login_of(kAddress, {{"vaultNamespace", "team"}, {"vaultAuthNamespace", "door"}}) == "door");
  CHECK(login_of(R"({"vaultAddress": "https://v", "vaultNamespace": "all"})", {}) == "all");
}

TEST_CASE("a tenant's ConfigMap with a wrong value is an error") {
  auto read = settings(Login::token, kAddress);
  CHECK_FALSE(vault::apply_tenant(Login::token, {{"vaultCAVerify", "no"}}, "v", read));
  CHECK_FALSE(vault::apply_tenant(Login::token, {{"vaultAddress", "vault"}}, "v", read));
}

TEST_CASE("an address is a host, a port and a path, and nothing that could end a request's line") {
  const auto url = parse_url("https://vault.example:8200/base/");
  REQUIRE(url);
  CHECK(url->peer.text() == "vault.example:8200");
  CHECK(url->peer.tls);
  CHECK(url->path == "/base");
  CHECK(parse_url("http://vault")->peer.port == 80);
  CHECK(parse_url("https://[::1]:8200")->peer.host == "::1");
  CHECK(parse_url("https://[::1]")->peer.port == 443);
  for (const char* text : {"", "vault:8200", "ftp://vault", "https://", "https://:8200",
                           "https://vault:", "https://v:0", "https://v:99999", "https://v:1x", "https://user@vault",
                           "https://v/a\r\nb", "https://v/a b", "https://v/?a", "https://[::1", "https://[::1]x"})
    CHECK_FALSE(parse_url(text));
}
