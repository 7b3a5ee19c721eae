#include <filesystem>
#include <fstream>

#include "config.hpp"
#include "fake_transport.hpp"
#include "metadata.hpp"
#include "support/api_server.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"
#include "wrapped_key.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

const std::string kVolume = "0001-0009-rook-ceph-0000000000000002-50d53503-9da1-11ed-847e-bacf8f2f1297";
const Secret kPassphrase("my-secret-passphrase");
const Secret kKey("w6XnDvKk3bO0u9pWm2Jq1rT5yZs=");
// Made with Python's hashlib.scrypt and cryptography's AESGCM, and Go's encoding/json.
const std::string kWrapped =
    R"({"dek":"boBrbKw/sviE9VfBTYV1lbkB8L6cAo0UB04uZz3h0eCwRyCm7aO6CHj/YSc=","nonce":"AAECAwQFBgcICQoL"})";

constexpr std::string_view kConfig = R"({
  "mine": {"encryptionKMSType": "metadata"},
  "by-provider": {"KMS_PROVIDER": "metadata"},
  "plain": {"encryptionKMSType": "default"},
  "far": {"encryptionKMSType": "of-the-future", "address": "https://vault"},
  "vault": {"encryptionKMSType": "vault", "vaultAddress": "https://vault"},
  "of-a-secret": {"encryptionKMSType": "metadata", "secretName": "s"},
  "of-nothing": {}, "text": "metadata"})";

}  // namespace

TEST_CASE("a volume key that another implementation wrapped as ceph-csi does is unwrapped") {
  const auto key = kms::unwrap_key(kVolume, kWrapped, kPassphrase);
  REQUIRE(key);
  CHECK(key->reveal() == kKey.reveal());
}

TEST_CASE("a wrapped volume key is unwrapped with its passphrase for its volume, and with nothing else") {
  const auto wrapped = kms::wrap_key(kVolume, kKey, kPassphrase);
  REQUIRE(wrapped);
  CHECK(wrapped->find(kKey.reveal()) == std::string::npos);
  CHECK(kms::unwrap_key(kVolume, *wrapped, kPassphrase)->reveal() == kKey.reveal());
  CHECK(kms::unwrap_key(kVolume, *wrapped, Secret("other")).error().code == errc::unauthenticated);
  CHECK(kms::unwrap_key("another-volume", *wrapped, kPassphrase).error().code == errc::unauthenticated);
  CHECK(*wrapped != *kms::wrap_key(kVolume, kKey, kPassphrase));
}

TEST_CASE("text that no KMS wrote is not a volume key, and the error does not repeat it") {
  for (const char* text :
       {"", "{}", "[]", "canary", R"({"dek":"canary!","nonce":"AAECAwQFBgcICQoL"})",
        R"({"dek":"AAAA","nonce":"AAECAwQFBgcICQoL"})",
        R"({"dek":"boBrbKw/sviE9VfBTYV1lbkB8L6cAo0UB04uZz3h0eCwRyCm7aO6CHj/YSc=","nonce":"AAEC"})"}) {
    const auto key = kms::unwrap_key(kVolume, text, kPassphrase);
    REQUIRE_FALSE(key);
    CHECK(key.error().code == errc::state_corrupt);
    CHECK(key.error().text.find("canary") == std::string::npos);
  }
}

TEST_CASE("a new volume key is as long as ceph-csi's and never the same twice") {
  const auto key = kms::make_volume_key();
  REQUIRE(key);
  CHECK(key->reveal().size() == 28);
  CHECK(key->reveal().find_first_of("+/") == std::string_view::npos);
  CHECK_FALSE(*key == *kms::make_volume_key());
}

TEST_CASE("the KMS config tells where a KMS's keys are and what it needs, by either key of the type") {
  const auto is = [](const char* id, kms::Kind kind, bool needs_passphrase) {
    const auto terms = kms::terms_of(kConfig, id);
    REQUIRE(terms);
    CHECK(terms->kind == kind);
    CHECK(terms->needs_passphrase == needs_passphrase);
  };
  is("mine", kms::Kind::wrapped, true);
  is("by-provider", kms::Kind::wrapped, true);
  is("of-a-secret", kms::Kind::wrapped, false);
  is("plain", kms::Kind::shared, true);
  is("vault", kms::Kind::stored, false);
}

TEST_CASE("the error for an unsupported KMS names its type, and for a missing one its name and those that exist",
          "[failure:104]") {
  const auto text_of = [](const char* id, errc code) {
    const auto terms = kms::terms_of(kConfig, id);
    REQUIRE_FALSE(terms);
    CHECK(terms.error().code == code);
    return terms.error().text;
  };
  CHECK_THAT(text_of("far", errc::unimplemented),
             ContainsSubstring("of-the-future") && ContainsSubstring("vaulttokens") && !ContainsSubstring("https"));
  CHECK_THAT(text_of("of-nothing", errc::failed_precondition), ContainsSubstring("encryptionKMSType"));
  CHECK_THAT(text_of("text", errc::failed_precondition), ContainsSubstring("text"));
  CHECK_THAT(text_of("nowhere", errc::failed_precondition),
             ContainsSubstring("nowhere") && ContainsSubstring("by-provider"));
  CHECK(kms::terms_of("[]", "mine").error().code == errc::failed_precondition);
}

TEST_CASE("a complaint about the KMS config names its KMS, and the keys that no one reads") {
  CHECK(kms::check_config(R"({"a": {"encryptionKMSType": "metadata", "secretName": "s"}, "b": {"KMS_PROVIDER": "vault",
      "vaultAddress": "https://v"}})")
            .empty());
  const auto found = kms::check_config(R"({"a": {"encryptionKMSType": "vault", "vaultAddress": "https://v",
      "vaultRolle": "x", "tenants": {}}, "b": {"encryptionKMSType": "vault"}, "c": 7})");
  REQUIRE(found.size() == 3);
  CHECK(found[0].kms_id == "a");
  CHECK(found[0].serves);
  CHECK_THAT(found[0].text, ContainsSubstring("vaultRolle, tenants"));
  CHECK_FALSE(found[1].serves);
  CHECK_THAT(found[1].text, ContainsSubstring("vaultAddress"));
  CHECK(found[2].kms_id == "c");
  CHECK(kms::check_config("{").size() == 1);
}

TEST_CASE("a ConfigMap has a section under each KMS's ID") {
  const std::map<std::string, std::string> data{{"mine", R"({"encryptionKMSType": "metadata"})"}, {"broken", "{"}};
  CHECK(kms::find_kms(data, "mine").value().terms().kind == kms::Kind::wrapped);
  CHECK_THAT(kms::find_kms(data, "broken").error().text, ContainsSubstring("broken"));
  CHECK_THAT(kms::find_kms(data, "other").error().text, ContainsSubstring("broken, mine"));
}

namespace {

struct ConfigMaps final : kms::Kubernetes {
  std::map<std::string, std::string> data;
  task<result<std::map<std::string, Secret>>> secret(std::string of, std::string name, Until) override {
    if (of != "team" || name != "ceph-csi-kms-token") co_return Error{errc::not_found, "no such Secret"};
    co_return std::map<std::string, Secret>{{"token", Secret("hvs.canary")}};
  }
  task<result<std::map<std::string, std::string>>> config_map(std::string of, std::string name, Until) override {
    if (of != "ceph" || name != "details" || data.empty()) co_return Error{errc::not_found, "no such ConfigMap"};
    co_return data;
  }
  task<result<Secret>> account_token(std::string, std::string, std::vector<std::string>, Until) override {
    co_return Error{errc::not_found, ""};
  }
};

struct Configured {
  Folder folder;
  Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ConfigMaps kubernetes;
  std::unique_ptr<kms::Kms> kms =
      kms::make_kms(loop.control(), loop.clock, pool, &kubernetes, {folder.path(), "ceph", "details"});
  void write(std::string_view text) { std::ofstream(folder.path() + "/config.json") << text; }
  result<kms::Terms> terms(const std::string& id) {
    return Started<result<kms::Terms>>(loop.io, kms->terms(id, {})).get();
  }
  result<Secret> unwrap(const std::string& id) {
    return Started<result<Secret>>(loop.io, kms->unwrap({id, {kVolume}, kPassphrase}, kWrapped, {})).get();
  }
};

}  // namespace

TEST_CASE("the KMS named default needs no config, any other does, and its file is read anew each time") {
  Configured scene;
  CHECK(scene.terms("default").value().kind == kms::Kind::shared);
  CHECK(scene.terms("mine").error().code == errc::failed_precondition);
  scene.write(kConfig);
  CHECK(scene.terms("mine").value().kind == kms::Kind::wrapped);
}

TEST_CASE("where no file is mounted, the ConfigMap of the pod's namespace is read, and a file comes before it") {
  Configured scene;
  scene.kubernetes.data = {{"other", R"({"encryptionKMSType": "metadata"})"}};
  CHECK(scene.terms("other").value().kind == kms::Kind::wrapped);
  scene.write(kConfig);
  CHECK_FALSE(scene.terms("other"));
  CHECK(scene.terms("mine"));
}

TEST_CASE("a volume key goes to the type of its KMS, and a KMS with one passphrase for all volumes has none") {
  Configured scene;
  scene.write(kConfig);
  CHECK(scene.unwrap("mine").value().reveal() == kKey.reveal());
  CHECK(scene.unwrap("far").error().code == errc::unimplemented);
  CHECK(scene.unwrap("plain").error().code == errc::failed_precondition);
  CHECK(scene.unwrap("vault").error().code == errc::failed_precondition);
}

TEST_CASE("a key goes over a connection to the tenant's Vault, with the tenant's token, and comes back") {
  std::string stored;
  const ApiServer server([&](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.method == "PUT") stored = request.body;
    if (request.authorization != "Bearer hvs.canary" || request.target != "/v1/secret/" + kVolume)
      peer.answer(403, R"({"errors": ["permission denied"]})");
    else if (request.method == "PUT")
      peer.answer(204, "");
    else
      peer.answer(stored.empty() ? 404 : 200, stored.empty() ? R"({"errors": []})" : R"({"data": )" + stored + "}");
  });
  Configured scene;
  scene.write(
      R"({"far": {"encryptionKMSType": "vaulttokens", "vaultBackend": "kv", "vaultAddress": "http://127.0.0.1:)" +
      std::to_string(server.port()) + "\"}}");
  const kms::KeyRequest request{"far", {kVolume, "team"}};
  const auto fetch = [&] {
    return Started<result<kms::Stored>>(scene.loop.io, scene.kms->fetch(request, {})).get().value();
  };
  CHECK_FALSE(fetch().key);
  REQUIRE(Started<result<>>(scene.loop.io, scene.kms->store(request, kKey, std::nullopt, {})).get());
  CHECK(fetch().key->reveal() == kKey.reveal());
}

namespace {

kms::KeyCall ask_of_secret(kms::Section section, const std::string& tenant) {
  return {std::move(section), "m", {kVolume, tenant}, Secret("of the node-stage secret"), {}, {}};
}

}  // namespace

TEST_CASE(
    "a metadata KMS with a Secret of its own takes the passphrase from there, and not from the node-stage secret") {
  Loop loop;
  FakeTransport transport;
  const std::string passphrase(kPassphrase.reveal());
  transport.secrets["team/s"] = {{"encryptionPassphrase", passphrase}};
  const auto in_team = ask_of_secret({{"secretName", "s"}}, "team");
  CHECK(loop.run(kms::metadata::unwrap(transport, in_team, kWrapped)).value().reveal() == kKey.reveal());
  const auto named = ask_of_secret({{"secretName", "s"}, {"secretNamespace", "team"}}, "other");
  const auto wrapped = loop.run(kms::metadata::wrap(transport, named, kKey));
  REQUIRE(wrapped);
  CHECK(kms::unwrap_key(kVolume, *wrapped, kPassphrase)->reveal() == kKey.reveal());
}

TEST_CASE("a metadata KMS whose Secret is missing, empty or in no known namespace is told") {
  Loop loop;
  FakeTransport transport;
  const auto code = [&](kms::Section section, const std::string& tenant) {
    return loop.run(kms::metadata::unwrap(transport, ask_of_secret(std::move(section), tenant), kWrapped)).error().code;
  };
  CHECK(code({{"secretName", "s"}}, "") == errc::failed_precondition);
  CHECK(code({{"secretName", "s"}}, "team") == errc::not_found);
  transport.secrets["team/s"] = {{"other", "x"}};
  CHECK(code({{"secretName", "s"}}, "team") == errc::failed_precondition);
  CHECK_FALSE(kms::metadata::check({{"secretName", 7}}, "m"));
}
