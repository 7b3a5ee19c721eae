// The conversation with Vault: what is asked in which order, as whom, and what its answers mean.
#include "vault.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "fake_transport.hpp"

using namespace corbd;
using namespace corbd::kms;
using namespace corbd::test;
using vault::Login;

namespace {

namespace json = boost::json;

constexpr const char* kId = "0001-0009-rook-ceph-0000000000000002-50d53503-9da1-11ed-847e-bacf8f2f1297";
constexpr const char* kPodToken = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A Vault with one KV engine at secret/, of version 2 unless it says otherwise.
struct Vault {
  bool v2 = true;
  std::map<std::string, json::object> secrets;  ///< by path below /v1/
  std::map<std::string, int> versions;
  std::string body_of_write;

  http::Reply operator()(const FakeTransport::Request& request) {
    const auto& message = request.message;
    if (message.target.ends_with("/login"))
      return FakeTransport::reply(200, R"({"auth": {"client_token": "hvs.canary"}})");
    if (message.bearer.reveal() != "hvs.canary")
      return FakeTransport::reply(403, R"({"errors": ["permission denied"]})");
    if (message.target == "/v1/sys/mounts")
      return FakeTransport::reply(200, v2 ? R"({"data": {"secret/": {"options": {"version": "2"}}}})"
                                          : R"({"data": {"secret/": {"options": {"version": "1"}}}})");
    const std::string path = message.target.substr(std::string_view("/v1/").size());
    if (message.method == "PUT") return write(path, message.body);
    const auto place = secrets.find(path);
    if (place == secrets.end()) return FakeTransport::reply(404, R"({"errors": []})");
    json::object body{{"data", place->second}};
    if (v2) body["metadata"] = json::object{{"version", versions[path]}};
    if (v2) body = json::object{{"data", json::object(body)}};
    return FakeTransport::reply(200, json::serialize(body));
  }

 private:
  http::Reply write(const std::string& path, const std::string& body) {
    body_of_write = body;
    auto value = json::parse(body).as_object();
    if (v2 && value.contains("options") && value.at("options").at("cas").to_number<int>() != versions[path])
      return FakeTransport::reply(400, R"({"errors": ["check-and-set parameter did not match the current version"]})");
    ++versions[path];
    secrets[path] = v2 ? value.at("data").as_object() : value;
    return FakeTransport::reply(v2 ? 200 : 204, v2 ? R"({"data": {"version": 1}})" : "");
  }
};

struct Scene {
  Loop loop;
  FakeTransport transport;
  Vault vault;
  Login login = Login::pod;
  std::string text = R"({"vaultAddress": "https://vault:8200", "vaultBackend": "kv-v2", "vaultCAVerify": "true"})";
  std::string tenant = "team";
  std::map<std::string, Secret> secrets;

  Scene() {
    transport.server = [this](const auto& request) { return vault(request); };
    transport.files[kPodToken] = "pod-token\n";
    transport.tokens["team/ceph-csi-vault-sa"] = "team-token";
    transport.secrets["team/ceph-csi-kms-token"] = {{"token", "hvs.canary\n"}};
  }
  KeyCall ask() const { return {json::parse(text).as_object(), "v", {kId, tenant}, {}, secrets, {}}; }
  result<Stored> fetch() { return loop.run(vault::fetch_by(login, transport, ask())); }
  result<> store_in_place_of(std::optional<std::uint64_t> version, const std::string& key) {
    return loop.run(vault::store_by(login, transport, ask(), Secret(key), version));
  }
  /// In place of what is there.
  result<> store(const std::string& key) {
    const auto found = fetch();
    if (!found) return found.error();
    return store_in_place_of(found->version, key);
  }
  std::string key() {
    const auto found = fetch();
    if (!found) FAIL(found.error().text);
    return found->key ? std::string(found->key->reveal()) : "none";
  }
  errc refused() {
    const auto found = fetch();
    REQUIRE_FALSE(found);
    CHECK(found.error().text.find("canary") == std::string::npos);
    return found.error().code;
  }
};

}  // namespace

TEST_CASE("a key in KV version 2 is where and as ceph-csi has it") {
  Scene scene;
  scene.vault.secrets[std::string("secret/data/") + kId] = {{"data", {{"passphrase", "a key"}}}};
  CHECK(scene.key() == "a key");
  CHECK(scene.transport.lines() ==
        std::vector<std::string>{"PUT /v1/auth/kubernetes/login", std::string("GET /v1/secret/data/") + kId});
  CHECK(scene.transport.requests[0].message.body == R"({"role":"csi-kubernetes","jwt":"pod-token"})");
}

TEST_CASE("a key in KV version 1 is where and as ceph-csi has it") {
  Scene scene;
  scene.vault.v2 = false;
  scene.text = R"({"vaultAddress": "https://vault:8200", "vaultBackend": "kv"})";
  scene.vault.secrets[std::string("secret/") + kId] = {{"data", {{"passphrase", "a key"}}}};
  CHECK(scene.key() == "a key");
}

TEST_CASE("the version of KV is asked for where the config does not name it") {
  Scene scene;
  scene.vault.v2 = GENERATE(true, false);
  scene.text = R"({"vaultAddress": "https://vault:8200"})";
  REQUIRE(scene.store("a key"));
  CHECK(scene.transport.lines()[1] == "GET /v1/sys/mounts");
  CHECK(scene.key() == "a key");
  CHECK(scene.vault.secrets.contains((scene.vault.v2 ? "secret/data/" : "secret/") + std::string(kId)));
}

TEST_CASE("a stored key has ceph-csi's form, and replaces the one before") {
  Scene scene;
  REQUIRE(scene.store("first"));
  CHECK(scene.vault.body_of_write == R"({"options":{"cas":0},"data":{"data":{"passphrase":"first"}}})");
  REQUIRE(scene.store("second"));
  CHECK(scene.key() == "second");
  scene.vault.v2 = false;
  scene.text = R"({"vaultAddress": "https://vault:8200", "vaultBackend": "kv"})";
  REQUIRE(scene.store("third"));
  CHECK(scene.vault.body_of_write == R"({"data":{"passphrase":"third"}})");
}

TEST_CASE("Vault's client knows which request stores, so that a lost answer is no refusal") {
  Scene scene;
  REQUIRE(scene.store("first"));
  for (const auto& asked : scene.transport.requests) {
    CAPTURE(asked.message.target);
    CHECK(asked.message.stores == (asked.message.method == "PUT" && !asked.message.target.ends_with("/login")));
  }
  CHECK(scene.transport.requests.back().message.stores);
}

TEST_CASE("KV version 2 counts the versions of a key, and version 1, which takes a late write for a new one, does not",
          "[failure:200]") {
  Scene scene;
  CHECK(scene.fetch()->version == 0);
  REQUIRE(scene.store("first"));
  CHECK(scene.fetch()->version == 1);
  scene.vault.v2 = false;
  scene.text = R"({"vaultAddress": "https://vault:8200", "vaultBackend": "kv"})";
  REQUIRE(scene.store("first"));
  CHECK_FALSE(scene.fetch()->version);
}

TEST_CASE("a write names the version that its key was read with, and is refused where another write came between",
          "[failure:174][failure:201]") {
  Scene scene;
  const auto before = scene.fetch();
  REQUIRE(before);
  REQUIRE(scene.store("another's"));
  CHECK(scene.store_in_place_of(before->version, "mine").error().code == errc::unavailable);
  CHECK(scene.key() == "another's");
}

TEST_CASE("a write that arrives after a later one changes nothing", "[failure:174]") {
  Scene scene;
  REQUIRE(scene.store("first"));
  const auto late = scene.transport.requests.back();
  REQUIRE(scene.store("second"));
  CHECK(scene.vault(late).status == 400);
  CHECK(scene.key() == "second");
}

TEST_CASE("a write whose answer was lost is told as one to repeat, and its key is there") {
  Scene scene;
  REQUIRE(scene.store("first"));
  scene.transport.server = [&](const FakeTransport::Request& request) {
    if (request.message.method == "PUT" && !request.message.target.ends_with("/login")) scene.vault(request);
    return scene.vault(request);
  };
  CHECK(scene.store("second").error().code == errc::unavailable);
  CHECK(scene.key() == "second");
}

TEST_CASE("a volume without a key, or with a deleted one, has none", "[failure:173]") {
  Scene scene;
  CHECK(scene.key() == "none");
  scene.transport.server = [&](const FakeTransport::Request& request) {
    if (request.message.method == "PUT") return scene.vault(request);
    return FakeTransport::reply(404, R"({"data": {"data": null, "metadata": {"deletion_time": "x", "version": 3}}})");
  };
  CHECK(scene.key() == "none");
}

TEST_CASE("a 404 that is not Vault's word about the secret is an error", "[failure:173]") {
  Scene scene;
  const std::string body = GENERATE(R"({"errors": ["no handler for route \"secret/\""]})", "<html>", "{}", "");
  scene.transport.server = [&](const FakeTransport::Request& request) {
    return request.message.method == "PUT" ? scene.vault(request) : FakeTransport::reply(404, body);
  };
  CHECK(scene.refused() == errc::failed_precondition);
}

TEST_CASE("an answer that holds no key of ceph-csi's is an error") {
  Scene scene;
  const std::string body =
      GENERATE(R"({"data": {"data": {"passphrase": "canary"}}})", R"({"data": {"data": {"data": {"passphrase": ""}}}})",
               R"({"data": {"data": {"data": {"passphrase": 7}}}})", R"({"data": [1]})", "canary");
  scene.transport.server = [&](const FakeTransport::Request& request) {
    return request.message.method == "PUT" ? scene.vault(request) : FakeTransport::reply(200, body);
  };
  CHECK(scene.refused() == errc::state_corrupt);
}

TEST_CASE("what Vault refuses has its word, and tells whether it passes", "[failure:202]") {
  Scene scene;
  const auto code_of = [&](unsigned status, const std::string& body) {
    scene.transport.server = [=](const FakeTransport::Request&) { return FakeTransport::reply(status, body); };
    const auto found = scene.fetch();
    REQUIRE_FALSE(found);
    CHECK_THAT(found.error().text, ContainsSubstring(std::to_string(status)) && ContainsSubstring("vault:8200"));
    return found.error().code;
  };
  CHECK(code_of(403, R"({"errors": ["permission denied"]})") == errc::permission_denied);
  CHECK(code_of(400, R"({"errors": ["invalid role name"]})") == errc::permission_denied);
  CHECK(code_of(503, R"({"errors": ["Vault is sealed"]})") == errc::unavailable);
  CHECK(code_of(429, "") == errc::unavailable);
  CHECK(code_of(408, "") == errc::unavailable);
  CHECK(code_of(500, "boom") == errc::unavailable);
  CHECK(code_of(307, "") == errc::failed_precondition);
  CHECK_THAT(scene.fetch().error().text, ContainsSubstring("logging in"));
  CHECK(vault::said(FakeTransport::reply(503, R"({"errors": ["Vault is\nsealed", 7]})")) == "503 Vault is sealed");
}

TEST_CASE("a login without a token is an error, and so is a token that a header cannot have") {
  Scene scene;
  const std::string body =
      GENERATE("{}", R"({"auth": {"client_token": ""}})", R"({"auth": {"client_token": "a\r\nb"}})");
  scene.transport.server = [=](const FakeTransport::Request&) { return FakeTransport::reply(200, body); };
  CHECK_FALSE(scene.fetch());
}

TEST_CASE("the pod logs in at Vault's namespace, which the path of the key begins with") {
  Scene scene;
  scene.text = R"({"vaultAddress": "https://vault", "vaultBackend": "kv-v2", "vaultNamespace": "a/b"})";
  REQUIRE(scene.store("a key"));
  CHECK(scene.transport.requests.front().header("X-Vault-Namespace") == "a/b");
  CHECK(scene.transport.requests.back().header("X-Vault-Namespace").empty());
  CHECK(scene.transport.requests.back().message.target == std::string("/v1/a/b/secret/data/") + kId);
}

TEST_CASE("a login's namespace of its own is for the setup, and the keys' namespace has a second login") {
  Scene scene;
  scene.text = R"({"vaultAddress": "https://v", "vaultNamespace": "a/b", "vaultAuthNamespace": "a"})";
  REQUIRE(scene.store_in_place_of(0, "a key"));
  const auto& asked = scene.transport.requests;
  REQUIRE(asked.size() == 4);
  CHECK(asked[0].header("X-Vault-Namespace") == "a");
  CHECK(asked[1].line() == "GET /v1/sys/mounts");
  CHECK(asked[1].header("X-Vault-Namespace") == "a");
  CHECK(asked[2].line() == "PUT /v1/auth/kubernetes/login");
  CHECK(asked[2].header("X-Vault-Namespace") == "a/b");
}

TEST_CASE("the authorities of type vault are a field of the node-stage secret") {
  Scene scene;
  scene.text = R"({"vaultAddress": "https://v", "vaultBackend": "kv-v2", "vaultCAFromSecret": "vault-ca"})";
  CHECK(scene.refused() == errc::failed_precondition);
  CHECK(scene.transport.requests.empty());
  scene.secrets.emplace("vault-ca", Secret("PEM"));
  CHECK(scene.key() == "none");
  CHECK(scene.transport.requests[0].peer.authorities == "PEM");
}

TEST_CASE("a tenant's token is in the Secret of the claim's namespace", "[failure:203]") {
  Scene scene;
  scene.login = Login::token;
  REQUIRE(scene.store("a key"));
  CHECK(scene.key() == "a key");
  CHECK(scene.transport.requests[0].line() == std::string("GET /v1/secret/data/") + kId);
  scene.tenant = "other";
  CHECK(scene.refused() == errc::not_found);
  scene.tenant = "";
  CHECK(scene.refused() == errc::failed_precondition);
}

TEST_CASE("a tenant's service account logs in with a token that is made for it") {
  Scene scene;
  scene.login = Login::tenant_account;
  CHECK(scene.key() == "none");
  CHECK(scene.transport.requests[0].message.body == R"({"role":"csi-kubernetes","jwt":"team-token"})");
}

TEST_CASE("a tenant's ConfigMap is applied, and a tenant without one has the section as it is") {
  Scene scene;
  scene.login = GENERATE(Login::token, Login::tenant_account);
  CHECK(scene.key() == "none");
  CHECK(scene.transport.requests.back().peer.host == "vault");
  scene.transport.config_maps["team/ceph-csi-kms-config"] = {
      {"vaultAddress", "https://theirs/base"}, {"vaultTLSServerName", "vault.theirs"}, {"vaultCAVerify", "false"}};
  scene.transport.server = [&](FakeTransport::Request request) {
    request.message.target = request.message.target.substr(std::string_view("/base").size());
    return scene.vault(request);
  };
  CHECK(scene.key() == "none");
  CHECK(scene.transport.requests.back().peer.host == "theirs");
  CHECK(scene.transport.requests.back().peer.name == "vault.theirs");
  CHECK(scene.transport.requests.back().peer.insecure);
  CHECK(scene.transport.requests.back().message.target.starts_with("/base/v1/"));
}

TEST_CASE("a tenant's certificates are in the tenant's Secrets, or else in those of the pod's namespace") {
  Scene scene;
  scene.login = Login::token;
  scene.text = R"({"vaultAddress": "https://v", "vaultBackend": "kv-v2", "vaultCAFromSecret": "ca",
      "vaultClientCertFromSecret": "cert", "vaultClientCertKeyFromSecret": "key"})";
  scene.transport.secrets["team/ca"] = {{"cert", "their authorities"}};
  scene.transport.secrets["ceph/ca"] = {{"cert", "our authorities"}};
  scene.transport.secrets["ceph/cert"] = {{"cert", "certificate"}};
  scene.transport.secrets["ceph/key"] = {{"key", "private"}};
  CHECK(scene.key() == "none");
  const auto& peer = scene.transport.requests[0].peer;
  CHECK(peer.authorities == "their authorities");
  CHECK(peer.certificate == "certificate");
  CHECK(peer.key.reveal() == "private");
  scene.transport.secrets["ceph/key"] = {{"other", "private"}};
  CHECK(scene.refused() == errc::failed_precondition);
}

TEST_CASE("neither a key nor a token is in the text of an error") {
  Scene scene;
  REQUIRE(scene.store("canary key"));
  scene.transport.server = [&](const FakeTransport::Request& request) {
    return request.message.target.ends_with("/login") ? scene.vault(request)
                                                      : FakeTransport::reply(200, R"({"data": {"data": "canary"}})");
  };
  CHECK(scene.refused() == errc::state_corrupt);
}
