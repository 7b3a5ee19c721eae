#include "corbd/volume/record_store.hpp"

#include <fcntl.h>

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"

using namespace corbd;
using plan::Record;

namespace {

Record sample() {
  Record record;
  record.volume_id = "image-1";
  record.driver = "rbd.csi.ceph.com";
  record.source = {"cluster", "pool", "", "image-1", ""};
  record.user = "node";
  record.key = {"5d8c1c34-0000-4000-8000-000000000000", 2, "", "10a6b8f0e1d2", 0};
  record.size = 18446744073709551104ull;
  record.exclusive_lock = true;
  record.boot_id = "b0071d00-0000-4000-8000-000000000000";
  record.device = 3;
  record.stagings.push_back({"/var/lib/kubelet/x/globalmount", {false, "ext4", "noatime", false, false}, true});
  record.publishes.push_back({"/var/lib/kubelet/pods/p/mount", "/var/lib/kubelet/x/globalmount", true});
  return record;
}

/// A pool's work ends outside of the loop.
template <class T>
T run(test::Loop& loop, task<T> work) {
  std::optional<T> out;
  asio::co_spawn(loop.io, std::move(work), [&](std::exception_ptr, T value) { out.emplace(std::move(value)); });
  while (!out) {
    loop.io.restart();
    loop.io.run_one();
  }
  return std::move(*out);
}

}  // namespace

TEST_CASE("a record read back is the one that was written") {
  const auto back = plan::decode(plan::encode(sample()));
  REQUIRE(back);
  CHECK(*back == sample());
}

TEST_CASE("what was noted of this node is part of the record of a provisioner's volume, and absent from others") {
  Record record = sample();
  CHECK(plan::encode(record).find("note") == std::string::npos);
  CHECK(plan::encode(record).find("provisioned") == std::string::npos);
  record.provisioned = true;
  record.note = plan::Note{"node", "10.0.0.1"};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a record says which client has its device, and nothing where it is nbd") {
  Record record = sample();
  CHECK(plan::encode(record).find("kind") == std::string::npos);
  CHECK(plan::encode(record).find("kernel") == std::string::npos);
  record.kind = device::Kind::krbd;
  record.source.kernel = {"queue_depth=64", "force"};
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("how a volume is served is part of its record, and absent where nothing was wished") {
  Record record = sample();
  CHECK(plan::encode(record).find("serving") == std::string::npos);
  record.source.serving = {false, 600, {{"rbd_op_threads", "2"}}};
  CHECK(*plan::decode(plan::encode(record)) == record);
  record.source.serving.dead_conn_timeout_s.reset();
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("which KMS has the key of an encrypted volume is part of its record, and absent where it is not encrypted") {
  Record record = sample();
  CHECK(plan::encode(record).find("kms") == std::string::npos);
  record.kms_id = "default";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("a format that was begun is part of the record, and absent from others") {
  Record record = sample();
  CHECK(plan::encode(record).find("format") == std::string::npos);
  record.format = "mkfs by 10.0.0.1:0/1";
  CHECK(*plan::decode(plan::encode(record)) == record);
}

TEST_CASE("with a record goes its busy file, unless a helper holds it; one without a record goes at the start") {
  const test::Folder folder;
  test::Loop loop;
  BlockingPool pool(loop.control(), loop.clock, 1);
  auto store = volume::make_record_store(pool, folder.path(), folder.path());
  REQUIRE(run(loop, store->load()));
  REQUIRE(run(loop, store->save(sample())));
  const std::string busy = store->busy_file(sample().volume_id);
  Fd helper(::open(busy.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const bool held = GENERATE(false, true);
  if (held) REQUIRE(::flock(helper.get(), LOCK_EX) == 0);
  REQUIRE(run(loop, store->load()));
  CHECK(std::filesystem::exists(busy));
  REQUIRE(run(loop, store->drop(sample().volume_id)));
  CHECK(std::filesystem::exists(busy) == held);
  helper.reset();
  REQUIRE(run(loop, store->load()));
  CHECK_FALSE(std::filesystem::exists(busy));
}

TEST_CASE("any truncation of a record is seen as corrupt") {
  const std::string bytes = plan::encode(sample());
  for (std::size_t length = 0; length + 2 < bytes.size(); ++length) {
    const auto back = plan::decode(std::string_view(bytes).substr(0, length));
    REQUIRE_FALSE(back);
    CHECK(back.error().code == errc::state_corrupt);
  }
}

TEST_CASE("any flipped bit of a record is seen, or changes nothing") {
  const std::string bytes = plan::encode(sample());
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      const auto back = plan::decode(flipped);
      if (back) CHECK(*back == sample());
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
  CHECK(*back == sample());
}

TEST_CASE("a corrupt record is set aside, a newer one left, the others load") {
  const test::Folder folder;
  test::Loop loop;
  BlockingPool pool(loop.control(), loop.clock, 1);
  auto store = volume::make_record_store(pool, folder.path(), folder.path());
  REQUIRE(run(loop, store->load()));
  REQUIRE(run(loop, store->save(sample())));
  REQUIRE(write_durably(folder.path() + "/volumes/bad.json", "{}", 0600));
  REQUIRE(write_durably(folder.path() + "/volumes/new.json", R"({"version":2})", 0600));
  const auto loaded = run(loop, store->load());
  REQUIRE(loaded);
  REQUIRE(loaded->records.size() == 1);
  CHECK(loaded->records.front() == sample());
  CHECK(loaded->set_aside.size() == 1);
  CHECK(loaded->newer.size() == 1);
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/volumes/bad.json"));
  CHECK(std::filesystem::exists(folder.path() + "/volumes/new.json"));
}

TEST_CASE("a newer version's record is not overwritten") {
  const test::Folder folder;
  test::Loop loop;
  BlockingPool pool(loop.control(), loop.clock, 1);
  auto store = volume::make_record_store(pool, folder.path(), folder.path());
  REQUIRE(run(loop, store->load()));
  const std::string path = folder.path() + "/volumes/" + sha256_hex(sample().volume_id) + ".json";
  REQUIRE(write_durably(path, R"({"version":99})", 0600));
  const auto saved = run(loop, store->save(sample()));
  REQUIRE_FALSE(saved);
  CHECK(saved.error().code == errc::state_newer);
  CHECK_THAT(saved.error().text, ContainsSubstring(path));
  CHECK(*read_file(path, 100) == R"({"version":99})");
}

TEST_CASE("a record holds no key") {
  const std::string bytes = plan::encode(sample());
  CHECK_THAT(bytes, !ContainsSubstring("secret"));
  CHECK_THAT(bytes, !ContainsSubstring("userKey"));
}

TEST_CASE("what a format and an operator's word left is part of the record, and absent from others") {
  Record record = sample();
  CHECK(volume::encode(record).find("format_version") == std::string::npos);
  CHECK(volume::encode(record).find("on_word") == std::string::npos);
  record.format_version = 7;
  record.on_word = true;
  record.signed_as = "uid-1";
  CHECK(*plan::decode(volume::encode(record)) == record);
}
