#include "ttlv.hpp"

#include "support/catch.hpp"

using namespace corbd::kms;

namespace {

std::string from_hex(std::string_view hex) {
  std::string text;
  for (std::size_t at = 0; at + 1 < hex.size(); at += 2)
    text += static_cast<char>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16));
  return text;
}

constexpr std::string_view kKeyId = "49a1ca88-6bea-4fb2-b450-7e58802c3038";

// KMIP 1.1 Test Cases, 3.1.3: Get, and its answer.
const std::string kGet = from_hex(
    "42007801000000904200770100000038420069010000002042006a0200000004000000010000000042006b0200000004"
    "000000010000000042000d0200000004000000010000000042000f010000004842005c05000000040000000a00000000"
    "4200790100000030420094070000002434396131636138382d366265612d346662322d623435302d3765353838303263"
    "3330333800000000");
const std::string kGot = from_hex(
    "42007b010000012842007a0100000048420069010000002042006a0200000004000000010000000042006b0200000004"
    "00000001000000004200920900000008000000004f9a54e742000d0200000004000000010000000042000f01000000d0"
    "42005c05000000040000000a0000000042007f0500000004000000000000000042007c01000000a84200570500000004"
    "0000000200000000420094070000002434396131636138382d366265612d346662322d623435302d3765353838303263"
    "333033380000000042008f01000000604200400100000058420042050000000400000001000000004200450100000020"
    "42004308000000187367578051012a6d134a855e25c8cd5e4ca131455729d3c842002805000000040000000200000000"
    "42002a0200000004000000a800000000");

}  // namespace

TEST_CASE("KMIP's Get is encoded as in its test cases") {
  const std::string version = ttlv(TtlvTag::protocol_version_major, TtlvType::integer, 1) +
                              ttlv(TtlvTag::protocol_version_minor, TtlvType::integer, 1);
  const std::string header =
      ttlv(TtlvTag::protocol_version, TtlvType::structure, version) + ttlv(TtlvTag::batch_count, TtlvType::integer, 1);
  const std::string payload = ttlv(TtlvTag::unique_identifier, TtlvType::text, kKeyId);
  const std::string item = ttlv(TtlvTag::operation, TtlvType::enumeration, 0x0a) +
                           ttlv(TtlvTag::request_payload, TtlvType::structure, payload);
  CHECK(ttlv(TtlvTag::request_message, TtlvType::structure,
             ttlv(TtlvTag::request_header, TtlvType::structure, header) +
                 ttlv(TtlvTag::batch_item, TtlvType::structure, item)) == kGet);
}

TEST_CASE("a key is found in the answer of KMIP's test cases, behind items that nobody asked for") {
  const auto payload = find_ttlv(kGot, {TtlvTag::response_message, TtlvTag::batch_item, TtlvTag::response_payload});
  REQUIRE(payload);
  const auto key = find_ttlv(payload->value,
                             {TtlvTag::symmetric_key, TtlvTag::key_block, TtlvTag::key_value, TtlvTag::key_material});
  REQUIRE(key);
  CHECK(key->type == TtlvType::bytes);
  CHECK(key->value == from_hex("7367578051012a6d134a855e25c8cd5e4ca131455729d3c8"));
  const auto status = find_ttlv(kGot, {TtlvTag::response_message, TtlvTag::batch_item, TtlvTag::result_status});
  CHECK(status->number() == 0u);
  CHECK_FALSE(key->number());
}

TEST_CASE("a KMIP message that is cut anywhere has no key") {
  for (std::size_t size = 0; size < kGot.size(); ++size)
    CHECK_FALSE(find_ttlv(std::string_view(kGot).substr(0, size), {TtlvTag::response_message}));
}

TEST_CASE("an item of a KMIP message whose length lies is not read") {
  std::string lying = ttlv(TtlvTag::data, TtlvType::bytes, "12345678");
  lying[4] = '\xff';
  std::string_view rest = lying;
  CHECK_FALSE(take_ttlv(rest));
  // Its value fits, its padding does not.
  const std::string whole = ttlv(TtlvTag::data, TtlvType::bytes, "1");
  rest = std::string_view(whole).substr(0, 9);
  CHECK_FALSE(take_ttlv(rest));
}

TEST_CASE("only a structure has KMIP items inside") {
  const std::string inner = ttlv(TtlvTag::data, TtlvType::bytes, "12345678");
  CHECK_FALSE(find_ttlv(ttlv(TtlvTag::batch_item, TtlvType::bytes, inner), {TtlvTag::batch_item, TtlvTag::data}));
  CHECK(find_ttlv(ttlv(TtlvTag::batch_item, TtlvType::structure, inner), {TtlvTag::batch_item, TtlvTag::data}));
}
