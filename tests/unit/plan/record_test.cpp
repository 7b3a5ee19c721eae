#include "corbd/plan/record.hpp"

#include "corbd/core/file.hpp"
#include "support/catch.hpp"
#include "support/sample_record.hpp"

using namespace corbd;
using plan::Record;

TEST_CASE("a record read back is the one that was written") {
  const auto back = plan::decode(plan::encode(test::sample_record()));
  REQUIRE(back);
  CHECK(*back == test::sample_record());
}

TEST_CASE("what was noted of this node is part of the record of a provisioner's volume, and absent from others") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("note") == std::string::npos);
  CHECK(plan::encode(record).find("provisioned") == std::string::npos);
  record.provisioned = true;
  record.note = plan::Note{"node", "10.0.0.1"};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record says which client has its device, and nothing where it is nbd") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("kind") == std::string::npos);
  CHECK(plan::encode(record).find("kernel") == std::string::npos);
  record.kind = device::Kind::krbd;
  record.source.kernel = {"queue_depth=64", "force"};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("how a volume is served is part of its record, and absent where nothing was wished") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("serving") == std::string::npos);
  record.source.serving = {false, 600, {{"rbd_op_threads", "2"}}};
  CHECK(*plan::decode(plan::encode(record)) == record);
  record.source.serving.dead_conn_timeout_s.reset();
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("which KMS has the key of an encrypted volume is part of its record, and absent where it is not encrypted") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("kms") == std::string::npos);
  record.kms_id = "default";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("the names of the claim and of the pods are part of the record, and absent where nobody told them") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("claim") == std::string::npos);
  CHECK(plan::encode(record).find("pod\"") == std::string::npos);
  record.claim = {"data", "shop", "pvc-1"};
  record.publishes.front().pod = "shop/db-0";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a client of rbd-nbd without a cache is part of the record, and absent from others") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("uncached") == std::string::npos);
  record.uncached = "10.0.0.1:0/9";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("when the image was modified last is part of the record, and absent where it is not known") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("modified") == std::string::npos);
  record.modified = 1'795'000'000'123'456'789;
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a format that was begun is part of the record, and absent from others") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("format") == std::string::npos);
  record.format = "mkfs by 10.0.0.1:0/1";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("any truncation of a record is seen as corrupt") {
  const std::string bytes = plan::encode(test::sample_record());
  for (std::size_t length = 0; length + 2 < bytes.size(); ++length) {
    const auto back = plan::decode(std::string_view(bytes).substr(0, length));
    REQUIRE_FALSE(back);
    CHECK(back.error().code == errc::state_corrupt);
  }
}

TEST_CASE("any flipped bit of a record is seen, or changes nothing") {
  const std::string bytes = plan::encode(test::sample_record());
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      const auto back = plan::decode(flipped);
      if (back) CHECK(*back == test::sample_record());
    }
}

TEST_CASE("a record of nothing but zeroes, as a power cut may leave it, is corrupt") {
  const auto back = plan::decode(std::string(512, '\0'));
  REQUIRE_FALSE(back);
  CHECK(back.error().code == errc::state_corrupt);
}

TEST_CASE("a record of a newer version is told apart from a corrupt one") {
  const auto back = plan::decode(R"({"version":99,"crc32c":0,"record":{}})");
  REQUIRE_FALSE(back);
  CHECK(back.error().code == errc::state_newer);
}

TEST_CASE("the first version's golden file reads for ever") {
  const auto bytes = read_file(std::string(CORBD_TESTS) + "/unit/plan/golden/record-v1.json", 1 << 20);
  REQUIRE(bytes);
  const auto back = plan::decode(*bytes);
  REQUIRE(back);
  CHECK(*back == test::sample_record());
}

TEST_CASE("a record holds no key") {
  const std::string bytes = plan::encode(test::sample_record());
  CHECK_THAT(bytes, !ContainsSubstring("secret"));
  CHECK_THAT(bytes, !ContainsSubstring("userKey"));
}

TEST_CASE("what a format and an operator override left is part of the record, and absent from others") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("format_version") == std::string::npos);
  CHECK(plan::encode(record).find("on_word") == std::string::npos);
  record.format_version = 7;
  record.operator_override = true;
  record.signed_as = "uid-1";
  CHECK(*plan::decode(plan::encode(record)) == record);
}
