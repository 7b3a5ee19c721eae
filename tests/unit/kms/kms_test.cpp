#include <filesystem>
#include <fstream>

#include "corbd/kms/kms.hpp"
#include "support/catch.hpp"
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
  "far": {"encryptionKMSType": "vault", "vaultAddress": "https://vault"},
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

TEST_CASE("the KMS config tells what a KMS's passphrase is for, by either key") {
  CHECK(kms::kind_of(kConfig, "mine").value() == kms::Kind::per_volume);
  CHECK(kms::kind_of(kConfig, "by-provider").value() == kms::Kind::per_volume);
  CHECK(kms::kind_of(kConfig, "plain").value() == kms::Kind::shared);
}

TEST_CASE("the error for an unsupported KMS names its type, and for a missing one its name and those that exist") {
  const auto text_of = [](const char* id, errc code) {
    const auto kind = kms::kind_of(kConfig, id);
    REQUIRE_FALSE(kind);
    CHECK(kind.error().code == code);
    return kind.error().text;
  };
  CHECK_THAT(text_of("far", errc::unimplemented), ContainsSubstring("vault") && !ContainsSubstring("https"));
  CHECK_THAT(text_of("of-a-secret", errc::unimplemented), ContainsSubstring("secretName"));
  CHECK_THAT(text_of("of-nothing", errc::failed_precondition), ContainsSubstring("encryptionKMSType"));
  CHECK_THAT(text_of("text", errc::failed_precondition), ContainsSubstring("text"));
  CHECK_THAT(text_of("nowhere", errc::failed_precondition),
             ContainsSubstring("nowhere") && ContainsSubstring("by-provider"));
  CHECK(kms::kind_of("[]", "mine").error().code == errc::failed_precondition);
}

TEST_CASE("the KMS named default needs no config, any other does, and its file is read anew each time") {
  const Folder folder;
  Loop loop;
  BlockingPool pool(loop.control(), loop.clock, 1);
  const auto kms = kms::make_kms(pool, folder.path());
  CHECK(kms->kind("default").value() == kms::Kind::shared);
  CHECK(kms->kind("mine").error().code == errc::failed_precondition);
  std::ofstream(folder.path() + "/config.json") << kConfig;
  CHECK(kms->kind("mine").value() == kms::Kind::per_volume);
}

TEST_CASE("a volume key goes to the type of its KMS, and a KMS with one passphrase for all volumes has none") {
  const Folder folder;
  Loop loop;
  BlockingPool pool(loop.control(), loop.clock, 1);
  const auto kms = kms::make_kms(pool, folder.path());
  std::ofstream(folder.path() + "/config.json") << kConfig;
  const auto unwrap = [&](const char* id) {
    return Started<result<Secret>>(loop.io, kms->unwrap(id, kVolume, kWrapped, kPassphrase, {})).get();
  };
  CHECK(unwrap("mine").value().reveal() == kKey.reveal());
  CHECK(unwrap("far").error().code == errc::unimplemented);
  CHECK(unwrap("plain").error().code == errc::failed_precondition);
}
