#include "corbd/plan/record.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "corbd/core/file.hpp"
#include "model.hpp"
#include "support/catch.hpp"
#include "support/places.hpp"
#include "support/sample_record.hpp"

using namespace corbd;
using plan::Record;

TEST_CASE("a record read back is the one that was written") {
  const auto back = plan::decode(plan::encode(test::sample_record()));
  REQUIRE(back);
  CHECK(*back == test::sample_record());
}

TEST_CASE("a record keeps the node's note for a provisioner's volume, and has no field for it otherwise") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("note") == std::string::npos);
  CHECK(plan::encode(record).find("provisioned") == std::string::npos);
  record.provisioned = true;
  record.note = plan::Note{"node", "10.0.0.1"};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record keeps the freeze that is not thawed yet, and has no field for it otherwise") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("freeze") == std::string::npos);
  CHECK(plan::encode(record).find("quiesce") == std::string::npos);
  record.freeze = plan::Freeze{"freeze-1"};
  record.source.serving.quiesce = false;
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record keeps the kind and options of a kernel client's device, and has no fields for them with nbd") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("kind") == std::string::npos);
  CHECK(plan::encode(record).find("kernel") == std::string::npos);
  record.device.kind = device::Kind::krbd;
  record.source.kernel = {"queue_depth=64", "force"};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record keeps the options for serving a volume, and has no field for them if none were given") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("serving") == std::string::npos);
  record.source.serving = {false, 600, {{"rbd_op_threads", "2"}}, false, false, {}};
  CHECK(*plan::decode(plan::encode(record)) == record);
  record.source.serving.dead_conn_timeout_s.reset();
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record keeps the KMS ID of an encrypted volume, and has no field for it otherwise") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("kms") == std::string::npos);
  record.encryption = plan::Encryption{plan::DeviceKms{"default"}};
  CHECK(*plan::decode(plan::encode(record)) == record);
  CHECK(plan::encode(record).find("tenant") == std::string::npos);
  record.encryption->tenant = "team";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("only the record of a volume with encrypted files has a version that older agents do not read") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).starts_with("{\"version\":1,"));
  record.encryption = plan::Encryption{plan::FilesKms{"default"}};
  CHECK(plan::encode(record).starts_with("{\"version\":2,"));
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record keeps the limits of a pod, and has no field for them if there are none") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("limits") == std::string::npos);
  record.publishes.front().limits = {1000, 100, 2097152, 1048576};
  record.device.io_limits = {.write_iops = 100};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record keeps the names of the claim and the pods, and has no fields for them if they are unknown") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("claim") == std::string::npos);
  CHECK(plan::encode(record).find("\"node\":") == std::string::npos);
  record.names.node = "node-1";
  CHECK(plan::decode(plan::encode(record))->names.node == "node-1");
  CHECK(plan::encode(record).find("pod\"") == std::string::npos);
  record.claim = {"data", "shop", "pvc-1"};
  record.publishes.front().pod = "shop/db-0";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record keeps the address of an rbd-nbd client without a cache, and has no field for it otherwise") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("uncached") == std::string::npos);
  record.adopting = plan::Adoption{"10.0.0.1:0/9"};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record keeps the time of the image's last modification, and has no field for it if the time is unknown") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("modified") == std::string::npos);
  record.proof.modified = 1'795'000'000'123'456'789;
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE(
    "a record keeps a damaged filesystem and what is to be done about one, and has no fields for them otherwise") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("damage") == std::string::npos);
  for (const auto policy : {plan::OnDamage::refuse, plan::OnDamage::read_only}) {
    record.source.on_damage = policy;
    record.damaged = policy == plan::OnDamage::read_only;
    CHECK(*plan::decode(plan::encode(record)) == record);
  }
}

TEST_CASE("a record keeps a format that has begun, and has no field for it otherwise") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("format") == std::string::npos);
  record.format = plan::Format{"mkfs by 10.0.0.1:0/1"};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record that is cut short anywhere in its JSON is corrupt", "[failure:20]") {
  const std::string bytes = plan::encode(test::sample_record());
  for (std::size_t length = 0; length + 1 < bytes.size(); ++length) {
    const auto back = plan::decode(std::string_view(bytes).substr(0, length));
    REQUIRE_FALSE(back);
    CHECK(back.error().code == errc::state_corrupt);
  }
}

TEST_CASE("a record with a flipped bit is rejected, or decodes to the record that was written", "[failure:20]") {
  const std::string bytes = plan::encode(test::sample_record());
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      const auto back = plan::decode(flipped);
      if (back) CHECK(*back == test::sample_record());
    }
}

TEST_CASE("a record full of NUL bytes, as a power cut may leave it, is corrupt") {
  const auto back = plan::decode(std::string(512, '\0'));
  REQUIRE_FALSE(back);
  CHECK(back.error().code == errc::state_corrupt);
}

#if !__has_feature(address_sanitizer)  // it has an allocator of its own
TEST_CASE("a record for which there is no memory is not corrupt", "[failure:230]") {
  Record record = test::sample_record();
  record.claim.name.assign(64 << 20, 'x');
  const std::string bytes = plan::encode(record);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // No more than it has.
    const rlimit nothing{0, 0};
    ::setrlimit(RLIMIT_AS, &nothing);
    const auto back = plan::decode(bytes);
    ::_exit(!back && back.error().code == errc::unavailable ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
#endif

TEST_CASE("a record of a newer version fails with another error than a corrupt record") {
  const auto back = plan::decode(R"({"version":99,"crc32c":0,"record":{}})");
  REQUIRE_FALSE(back);
  CHECK(back.error().code == errc::state_newer);
}

TEST_CASE("the golden file of the first record version still decodes", "[failure:48]") {
  const auto bytes = read_file(test::tests_folder() + "/unit/plan/golden/record-v1.json", 1 << 20);
  REQUIRE(bytes);
  const auto back = plan::decode(*bytes);
  REQUIRE(back);
  CHECK(*back == test::sample_record());
}

TEST_CASE("the golden file of the second record version still decodes") {
  const auto bytes = read_file(test::tests_folder() + "/unit/plan/golden/record-v2.json", 1 << 20);
  REQUIRE(bytes);
  const auto back = plan::decode(*bytes);
  REQUIRE(back);
  Record record = test::sample_record();
  record.encryption = plan::Encryption{plan::FilesKms{"default"}};
  CHECK(*back == record);
}

TEST_CASE("no record that a stage writes contains the Ceph key or the passphrase", "[rule:15]") {
  test::Model model = test::fresh();
  model.kms_id = "default";
  model.filesystem_bytes = test::mapping().size;
  plan::Staged staged = test::staged_wish();
  staged.credential.user = "node";
  staged.credential.key = Secret("canary-key");
  staged.passphrase = Secret("canary-passphrase");
  staged.secrets.emplace("vault-ca", Secret("canary-authority"));
  const plan::Wish wish(staged);
  plan::Decision next = model.decide(wish);
  int records = 0;
  for (int steps = 0; steps < 40 && std::holds_alternative<plan::Step>(next); ++steps, next = model.decide(wish)) {
    const auto step = std::get<plan::Step>(next);
    if (const auto* write = std::get_if<plan::step::WriteRecord>(&step)) {
      ++records;
      CHECK_THAT(plan::encode(write->record), !ContainsSubstring("canary"));
    }
    model.apply(step, wish);
  }
  CHECK(std::holds_alternative<plan::Done>(next));
  CHECK(records > 1);
}

TEST_CASE(
    "the time between two readings of both clocks is that of the clock that shows more: the machine sleeps, the wall "
    "is set") {
  using std::chrono::milliseconds;
  CHECK(plan::between({100, 5000}, {400, 5300}) == milliseconds(300));
  CHECK(plan::between({100, 5000}, {400, 9000}) == milliseconds(4000));
  CHECK(plan::between({100, 5000}, {400, 2000}) == milliseconds(300));
}

TEST_CASE("a record keeps its format version, an operator override and the stash's attachment UID") {
  Record record = test::sample_record();
  CHECK(plan::encode(record).find("format_version") == std::string::npos);
  CHECK(plan::encode(record).find("on_word") == std::string::npos);
  record.format = plan::Format{"mkfs by 10.0.0.1:0/1", 7};
  record.proof.operator_override = true;
  record.proof.signed_as = "uid-1";
  record.proof.lock_call = plan::LockCall{"10.0.0.1:0/7", {1, -2}};
  record.proof.lock_break = plan::LockBreak{6, 7};
  record.proof.reattached_as = "uid-2";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("each field of a record stands at the top of its JSON, in the order in which versions added them",
          "[failure:48]") {
  Record record;
  record.volume_id = "v";
  record.names = {"d", "n"};
  record.user = "u";
  record.key = {"f", 1, "", "k", 0};
  record.device = {device::Kind::krbd, 7, 4096, 512, true, "b", {.write_iops = 4}};
  record.use = {true, false, true};
  record.encryption = plan::Encryption{plan::DeviceKms{"kms"}, "t"};
  record.adopting = plan::Adoption{"c"};
  record.cache_lost = record.failed = record.provisioned = true;
  record.proof = {"1", "2", "3", plan::LockBreak{4, 5}, plan::LockCall{"c", {6, 7}}, 8, true};
  record.format = plan::Format{"m", 9};
  record.claim = {"p", "s", "pv"};
  record.note = plan::Note{"u", "a"};
  const std::string bytes = plan::encode(record);
  CHECK_THAT(
      bytes,
      ContainsSubstring(
          R"("size":4096,"block_size":512,"exclusive_lock":true,"block":true,"read_only":false,"shared":true,)"
          R"("adopting":true,"failed":true,"boot_id":"b","attachment_uid":"1","stagings":[],"publishes":[],)"
          R"("node":"n","kind":"krbd","cache_lost":true,"uncached":"c","reattached_as":"2","signed_as":"3",)"
          R"("kms_id":"kms","tenant":"t","device":7,"breaking":4,"freed":5,)"
          R"("lock_call":{"client":"c","began":{"steady_ms":6,"wall_ms":7}},"modified":8,"format":"m",)"
          R"("format_version":9,"on_word":true,"provisioned":true,)"
          R"("claim":{"name":"p","namespace":"s","volume":"pv"},)"
          R"("io_limits":{"read_iops":0,"write_iops":4,"read_bps":0,"write_bps":0},"note":{"user":"u","address":"a"}})"));
  CHECK(*plan::decode(bytes) == record);
}
