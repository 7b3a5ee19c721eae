#include "kmip.hpp"

#include "cloud_scene.hpp"
#include "ttlv.hpp"
#include "wrapped_key.hpp"

using namespace corbd;
using namespace corbd::kms;
using namespace corbd::test;

namespace {

const Secret kKey("w6XnDvKk3bO0u9pWm2Jq1rT5yZs=");
/// What ceph-csi keeps of a key that a server encrypted.
const std::string kEncrypted = R"({"dek":"AQIDBAUGBwgJCgsMDQ4PEA==","nonce":"MDEyMzQ1Njc4OWFiY2RlZg=="})";
/// Made with Python's cryptography: AES-GCM with the key of KMIP 1.1 Test Cases, 3.1.3.
const std::string kSealed =
    R"({"dek":"lyn1Wqlu1Ki48UWvmpHBdfkO+Dwpt45MTAX+W93Mt49YPkCOSza//SaCOxw=","nonce":"AAECAwQFBgcICQoL"})";
const std::string kServersKey =
    "\x73\x67\x57\x80\x51\x01\x2a\x6d\x13\x4a\x85\x5e\x25\xc8\xcd\x5e\x4c\xa1\x31\x45\x57\x29\xd3\xc8";

std::string answered(std::uint32_t status, const std::string& items) {
  return ttlv(TtlvTag::response_message, TtlvType::structure,
              ttlv(TtlvTag::batch_item, TtlvType::structure,
                   ttlv(TtlvTag::result_status, TtlvType::enumeration, status) + items));
}
std::string succeeded(const std::string& payload) {
  return answered(0, ttlv(TtlvTag::response_payload, TtlvType::structure, payload));
}
std::string with_data(std::string_view data) { return succeeded(ttlv(TtlvTag::data, TtlvType::bytes, data)); }
std::string failed(std::uint32_t reason) {
  return answered(1, ttlv(TtlvTag::result_reason, TtlvType::enumeration, reason) +
                         ttlv(TtlvTag::result_message, TtlvType::text, "the server's words"));
}
std::string with_key(std::string_view key) {
  const std::string value =
      ttlv(TtlvTag::key_value, TtlvType::structure, ttlv(TtlvTag::key_material, TtlvType::bytes, key));
  return succeeded(
      ttlv(TtlvTag::symmetric_key, TtlvType::structure, ttlv(TtlvTag::key_block, TtlvType::structure, value)));
}

struct KmipServer : CloudScene {
  KmipServer() {
    ask.section["KMIP_ENDPOINT"] = "kmip.example:5696";
    transport.secrets["ceph/ceph-csi-kmip-credentials"] = {
        {"CA_CERT", "ca"}, {"CLIENT_CERT", "certificate"}, {"CLIENT_KEY", "key"}, {"UNIQUE_IDENTIFIER", "id-1"}};
  }
  result<Secret> unwrap(std::string wrapped = kEncrypted) { return loop.run(kmip::unwrap(transport, ask, wrapped)); }
  result<std::string> wrap() { return loop.run(kmip::wrap(transport, ask, kKey)); }
  errc unwrap_error(std::string message) {
    frames.emplace_back(std::move(message));
    const auto key = unwrap();
    REQUIRE_FALSE(key);
    text = key.error().text;
    return key.error().code;
  }
  /// The request's payload.
  std::string asked(kmip::KmipOperation operation) {
    const auto item = find_ttlv(framed.back().second, {TtlvTag::request_message, TtlvTag::batch_item});
    REQUIRE(item);
    CHECK(find_ttlv(item->value, {TtlvTag::operation})->number() == static_cast<std::uint32_t>(operation));
    return std::string(find_ttlv(item->value, {TtlvTag::request_payload})->value);
  }

  std::string text;
};

}  // namespace

TEST_CASE("a KMIP server decrypts a volume's key with the key and the parameters that ceph-csi names") {
  KmipServer server;
  server.frames.emplace_back(with_data(kKey.reveal()));
  CHECK(server.unwrap().value().reveal() == kKey.reveal());
  const auto& peer = server.framed.at(0).first;
  CHECK(peer.text() == "kmip.example:5696");
  CHECK(peer.authorities + peer.certificate + std::string(peer.key.reveal()) == "cacertificatekey");
  const std::string payload = server.asked(kmip::KmipOperation::decrypt);
  CHECK(find_ttlv(payload, {TtlvTag::unique_identifier})->value == "id-1");
  CHECK(find_ttlv(payload, {TtlvTag::data})->value == "\1\2\3\4\5\6\7\x8\x9\xa\xb\xc\xd\xe\xf\x10");
  CHECK(find_ttlv(payload, {TtlvTag::iv_counter_nonce})->value == "0123456789abcdef");
  const auto number = [&](TtlvTag tag) {
    return find_ttlv(payload, {TtlvTag::cryptographic_parameters, tag})->number();
  };
  CHECK(number(TtlvTag::block_cipher_mode) == 1u);
  CHECK(number(TtlvTag::padding_method) == 3u);
  CHECK(number(TtlvTag::cryptographic_algorithm) == 3u);
}

TEST_CASE("a key that a KMIP server encrypts is kept with its nonce as ceph-csi keeps it") {
  KmipServer server;
  server.frames.emplace_back(with_data("encrypted"));
  const auto kept = parse_wrapped_key(server.wrap().value());
  REQUIRE(kept);
  CHECK(kept->dek == "encrypted");
  const std::string payload = server.asked(kmip::KmipOperation::encrypt);
  CHECK(find_ttlv(payload, {TtlvTag::data})->value == kKey.reveal());
  CHECK(find_ttlv(payload, {TtlvTag::iv_counter_nonce})->value == kept->nonce);
  CHECK(kept->nonce.size() == 16);
}

TEST_CASE("a KMIP request is encoded as a message of KMIP 1.4") {
  const std::string message = kmip::request_of(kmip::KmipOperation::get, "");
  const auto header = find_ttlv(message, {TtlvTag::request_message, TtlvTag::request_header});
  REQUIRE(header);
  CHECK(find_ttlv(header->value, {TtlvTag::protocol_version, TtlvTag::protocol_version_major})->number() == 1u);
  CHECK(find_ttlv(header->value, {TtlvTag::protocol_version, TtlvTag::protocol_version_minor})->number() == 4u);
  CHECK(find_ttlv(header->value, {TtlvTag::batch_count})->number() == 1u);
}

TEST_CASE("without USE_CRYPTO_RPC the KMIP server's key is fetched, and opens what ceph-csi sealed for GKLM") {
  KmipServer server;
  server.ask.section["USE_CRYPTO_RPC"] = "false";
  server.frames.emplace_back(with_key(kServersKey));
  CHECK(server.unwrap(kSealed).value().reveal() == kKey.reveal());
  CHECK(find_ttlv(server.asked(kmip::KmipOperation::get), {TtlvTag::unique_identifier})->value == "id-1");
}

TEST_CASE("a key sealed with a KMIP server's own key is opened with it, and with no other") {
  KmipServer server;
  server.ask.section["USE_CRYPTO_RPC"] = "false";
  server.frames.emplace_back(with_key(kServersKey));
  const auto sealed = server.wrap();
  REQUIRE(sealed);
  CHECK(parse_wrapped_key(*sealed)->nonce.size() == 12);
  server.frames.emplace_back(with_key(kServersKey));
  CHECK(server.unwrap(*sealed).value().reveal() == kKey.reveal());
  server.frames.emplace_back(with_key(std::string(32, 'x')));
  CHECK(server.unwrap(*sealed).error().code == errc::unauthenticated);
  server.frames.emplace_back(with_key("short"));
  CHECK(server.unwrap(*sealed).error().code == errc::failed_precondition);
}

TEST_CASE("a refusal of a KMIP server is told with its reason and its words", "[failure:202]") {
  KmipServer server;
  CHECK(server.unwrap_error(failed(0x0c)) == errc::permission_denied);
  CHECK_THAT(server.text, ContainsSubstring("the server's words") && ContainsSubstring("UNIQUE_IDENTIFIER"));
  CHECK(server.unwrap_error(failed(0x03)) == errc::unauthenticated);
  CHECK(server.unwrap_error(failed(0x0a)) == errc::unauthenticated);
  CHECK(server.unwrap_error(failed(0x01)) == errc::failed_precondition);
  CHECK(server.unwrap_error(answered(1, "")) == errc::failed_precondition);
}

TEST_CASE("an answer of a KMIP server that is cut, or of another shape, is no key") {
  KmipServer server;
  const std::string good = with_data(kKey.reveal());
  for (const std::string& message :
       {std::string(), good.substr(0, good.size() - 8), std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), succeeded(""),
        with_data(""), succeeded(ttlv(TtlvTag::data, TtlvType::text, "text")),
        ttlv(TtlvTag::response_message, TtlvType::structure, "")})
    CHECK(server.unwrap_error(message) == errc::unavailable);
}

TEST_CASE("a KMIP server that cannot be reached is told as it is") {
  KmipServer server;
  const auto key = server.unwrap();
  CHECK(key.error().code == errc::unavailable);
  CHECK_THAT(key.error().text, ContainsSubstring("unwrapping the key of volume volume: it refused"));
}

TEST_CASE("the settings of a KMIP server that cannot be used are named") {
  const auto error_of = [](Section section) {
    const auto checked = kmip::check(section, "mine");
    REQUIRE_FALSE(checked);
    return checked.error().text;
  };
  CHECK(kmip::check({{"KMIP_ENDPOINT", "[::1]:5696"}, {"USE_CRYPTO_RPC", "0"}, {"READ_TIMEOUT", 10}}, "mine"));
  CHECK_THAT(error_of({}), ContainsSubstring("KMIP_ENDPOINT"));
  for (const char* endpoint : {"kmip.example", "[::1]", "kmip.example:5696/path", ":", "a:b"})
    CHECK_THAT(error_of({{"KMIP_ENDPOINT", endpoint}}), ContainsSubstring("KMIP_ENDPOINT"));
  CHECK_THAT(error_of({{"KMIP_ENDPOINT", "a:1"}, {"USE_CRYPTO_RPC", "no"}}), ContainsSubstring("USE_CRYPTO_RPC"));
  CHECK_THAT(error_of({{"KMIP_ENDPOINT", "a:1"}, {"USE_CRYPTO_RPC", true}}), ContainsSubstring("USE_CRYPTO_RPC"));
  CHECK_THAT(error_of({{"KMIP_ENDPOINT", "a:1"}, {"TLS_MIN_VERSION", "1.1"}}), ContainsSubstring("TLS_MIN_VERSION"));
}

TEST_CASE("the config may name what a KMIP server's certificate and its TLS must have") {
  KmipServer server;
  server.ask.section["TLS_SERVER_NAME"] = "kmip.internal";
  server.ask.section["TLS_MIN_VERSION"] = "1.3";
  CHECK_FALSE(server.unwrap());
  CHECK(server.framed.at(0).first.tls13);
  CHECK(server.framed.at(0).first.name == "kmip.internal");
}
