#include "key_protect.hpp"

#include "cloud_scene.hpp"
#include "corbd/core/base64.hpp"

using namespace corbd;
using namespace corbd::kms;
using namespace corbd::test;

namespace {

const Secret kKey("w6XnDvKk3bO0u9pWm2Jq1rT5yZs=");
const std::string kCiphertext = "eyJjaXBoZXJ0ZXh0IjoiIn0=";
/// ceph-csi encodes once more what is base64 already.
const std::string kWrapped = to_base64(kCiphertext);

struct KeyProtect : CloudScene {
  KeyProtect() {
    ask.section["IBM_KP_SERVICE_INSTANCE_ID"] = "instance";
    transport.secrets["ceph/ceph-csi-kp-credentials"] = {{"IBM_KP_SERVICE_API_KEY", "api key"},
                                                         {"IBM_KP_CUSTOMER_ROOT_KEY", "root"},
                                                         {"IBM_KP_SESSION_TOKEN", "unused"}};
  }
  void give_token() { answer(200, R"({"access_token":"token","token_type":"Bearer","expires_in":3600})"); }
  result<Secret> unwrap() { return loop.run(key_protect::unwrap(transport, ask, kWrapped)); }
  result<std::string> wrap(Secret key = kKey) { return loop.run(key_protect::wrap(transport, ask, key)); }
  errc unwrap_error(unsigned status, std::string body) {
    give_token();
    answer(status, std::move(body));
    const auto key = unwrap();
    REQUIRE_FALSE(key);
    text = key.error().text;
    return key.error().code;
  }

  std::string text;
};

}  // namespace

TEST_CASE("Key Protect unwraps a volume's key, with the token for its API key and the volume's ID") {
  KeyProtect ibm;
  ibm.give_token();
  ibm.answer(200, R"({"plaintext":"w6XnDvKk3bO0u9pWm2Jq1rT5yZs=","keyVersion":{"id":"1"}})");
  CHECK(ibm.unwrap().value().reveal() == kKey.reveal());
  REQUIRE(ibm.transport.requests.size() == 2);
  const auto& login = ibm.transport.requests[0];
  CHECK(login.peer.text() + login.message.target == "iam.cloud.ibm.com:443/oidc/token");
  CHECK(login.message.body == "grant_type=urn%3Aibm%3Aparams%3Aoauth%3Agrant-type%3Aapikey&apikey=api%20key");
  const auto& asked = ibm.transport.requests[1];
  CHECK(asked.peer.text() + asked.message.target == "us-south.kms.cloud.ibm.com:443/api/v2/keys/root/actions/unwrap");
  CHECK(asked.message.bearer.reveal() == "token");
  CHECK(asked.header("Bluemix-Instance") == "instance");
  CHECK(asked.message.body == R"({"ciphertext":"eyJjaXBoZXJ0ZXh0IjoiIn0=","aad":["volume"]})");
}

TEST_CASE("a key that Key Protect wraps is sent as it is, and its ciphertext is kept in base64, as ceph-csi does") {
  KeyProtect ibm;
  ibm.ask.section["IBM_KP_BASE_URL"] = "https://i.api.eu-de.hs-crypto.cloud.ibm.com:9730";
  ibm.ask.section["IBM_KP_TOKEN_URL"] = "";
  ibm.give_token();
  ibm.answer(200, R"({"ciphertext":"eyJjaXBoZXJ0ZXh0IjoiIn0="})");
  CHECK(ibm.wrap().value() == kWrapped);
  const auto& asked = ibm.transport.requests.at(1);
  CHECK(asked.peer.text() + asked.message.target ==
        "i.api.eu-de.hs-crypto.cloud.ibm.com:9730/api/v2/keys/root/actions/wrap");
  CHECK(asked.message.body == R"({"plaintext":"w6XnDvKk3bO0u9pWm2Jq1rT5yZs=","aad":["volume"]})");
}

TEST_CASE("Key Protect is not asked to wrap what it cannot, and every new volume key is what it can") {
  KeyProtect ibm;
  CHECK(ibm.wrap(Secret("w6XnDvKk3bO0u9pWm2Jq1rT5_-s=")).error().code == errc::invalid_argument);
  CHECK(ibm.transport.requests.empty());
  for (int i = 0; i < 50; ++i) CHECK(from_base64(make_volume_key().value().reveal()));
}

TEST_CASE("an API key that IBM does not know is told with IBM's reason, and without the key") {
  KeyProtect ibm;
  ibm.answer(400, R"({"errorCode":"BXNIM0415E","errorMessage":"Provided API key could not be found."})");
  const auto key = ibm.unwrap();
  CHECK(key.error().code == errc::unauthenticated);
  CHECK_THAT(key.error().text,
             ContainsSubstring("Provided API key could not be found") && !ContainsSubstring("api key"));
  CHECK(ibm.transport.requests.size() == 1);
}

TEST_CASE("a refusal of Key Protect is told by its status") {
  KeyProtect ibm;
  CHECK(ibm.unwrap_error(403, R"({"resources":[{"errorMsg":"Forbidden: no access"}]})") == errc::permission_denied);
  CHECK_THAT(ibm.text, ContainsSubstring("Forbidden: no access"));
  CHECK(ibm.unwrap_error(429, "") == errc::unavailable);
  CHECK(ibm.unwrap_error(404, "") == errc::failed_precondition);
  CHECK(ibm.unwrap_error(400, R"({"resources":[{"errorMsg":"Bad Request: Unwrap with key could not be performed",)"
                              R"("reasons":[{"message":"The field `ciphertext` must be: the original"}]}]})") ==
        errc::unauthenticated);
  CHECK_THAT(ibm.text, ContainsSubstring("did not wrap the key in the image's metadata"));
}

TEST_CASE("an answer of Key Protect that is cut, or of another shape, is no key") {
  for (const char* body :
       {R"({"plaintext":"w6Xn)", "[]", R"({"ciphertext":"x"})", R"({"plaintext":[]})", R"({"plaintext":""})"}) {
    KeyProtect ibm;
    CHECK(ibm.unwrap_error(200, body) == errc::unavailable);
  }
  KeyProtect ibm;
  ibm.answer(200, "{}");
  CHECK(ibm.unwrap().error().code == errc::unavailable);
}

TEST_CASE("text in the image's metadata that Key Protect did not make is told before IBM is asked") {
  KeyProtect ibm;
  CHECK(ibm.loop.run(key_protect::unwrap(ibm.transport, ibm.ask, "{}")).error().code == errc::state_corrupt);
  CHECK(ibm.transport.requests.empty());
}

TEST_CASE("the settings of Key Protect that cannot be used are named") {
  CHECK(key_protect::check({{"IBM_KP_SERVICE_INSTANCE_ID", "i"}, {"IBM_KP_REGION", "us-south-2"}}, "mine"));
  CHECK_THAT(key_protect::check({{"secretName", "s"}}, "mine").error().text,
             ContainsSubstring("IBM_KP_SERVICE_INSTANCE_ID"));
  for (const char* key : {"IBM_KP_BASE_URL", "IBM_KP_TOKEN_URL"})
    for (const char* url : {"kms.cloud.ibm.com", "http://kms.cloud.ibm.com"})
      CHECK_THAT(key_protect::check({{"IBM_KP_SERVICE_INSTANCE_ID", "i"}, {key, url}}, "mine").error().text,
                 ContainsSubstring(key));
}
