#include "corbd/volume/record_store.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <boost/asio/co_spawn.hpp>
#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"
#include "support/sample_record.hpp"

using namespace corbd;

namespace {

/// A store in a folder of its own, loaded once.
struct Disk {
  Disk() { REQUIRE(run(store->load())); }
  /// The pool's work ends outside of the loop, so that the loop must be run until the result is there.
  template <class T>
  T run(task<T> work) {
    std::optional<T> out;
    asio::co_spawn(loop.io, std::move(work), [&](std::exception_ptr, T value) { out.emplace(std::move(value)); });
    while (!out) {
      loop.io.restart();
      loop.io.run_one();
    }
    return std::move(*out);
  }
  /// As if its key came later.
  void write_record(const plan::Record& record) const {
    REQUIRE(write_durably(folder.path() + "/volumes/" + sha256_hex(record.volume_id) + ".json", plan::encode(record),
                          0600));
  }
  const test::Folder folder;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  std::unique_ptr<volume::RecordStore> store = volume::make_record_store(pool, folder.path(), folder.path());
};

}  // namespace

TEST_CASE(
    "dropping a record deletes its busy file unless a helper holds it, and loading the records deletes orphaned busy "
    "files") {
  Disk kept;
  REQUIRE(kept.run(kept.store->save(test::sample_record())));
  const std::string busy = kept.store->busy_file(test::sample_record().volume_id);
  Fd helper(::open(busy.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const bool held = GENERATE(false, true);
  if (held) REQUIRE(::flock(helper.get(), LOCK_EX) == 0);
  REQUIRE(kept.run(kept.store->load()));
  CHECK(std::filesystem::exists(busy));
  REQUIRE(kept.run(kept.store->drop(test::sample_record().volume_id)));
  CHECK(std::filesystem::exists(busy) == held);
  helper.reset();
  REQUIRE(kept.run(kept.store->load()));
  CHECK_FALSE(std::filesystem::exists(busy));
}

TEST_CASE("a peek at the records leaves half-written, corrupt and orphaned files in place") {
  Disk kept;
  REQUIRE(kept.run(kept.store->save(test::sample_record())));
  const std::string records = kept.folder.path() + "/volumes/";
  for (const char* name : {"half.json.tmp", "torn.json", "alone.busy"})
    REQUIRE(write_durably(records + name, "{", 0600));
  const auto seen = kept.run(kept.store->peek({}));
  REQUIRE(seen);
  CHECK(seen->size() == 1);
  for (const char* name : {"half.json.tmp", "torn.json", "alone.busy"}) CHECK(std::filesystem::exists(records + name));
}

TEST_CASE("a copy of a record under another name counts for nothing and stays, whatever is older") {
  Disk kept;
  REQUIRE(kept.run(kept.store->save(test::sample_record())));
  auto old = test::sample_record();
  old.publishes.clear();
  const std::string records = kept.folder.path() + "/volumes/";
  for (const char* name : {"0-copy.json", "z-copy.json"})
    REQUIRE(write_durably(records + name, plan::encode(old), 0600));
  const auto seen = kept.run(kept.store->peek({}));
  REQUIRE(seen);
  CHECK(*seen == std::vector{test::sample_record()});
  const auto loaded = kept.run(kept.store->load());
  REQUIRE(loaded);
  CHECK(loaded->records == std::vector{test::sample_record()});
  for (const char* name : {"0-copy.json", "z-copy.json"}) CHECK(std::filesystem::exists(records + name));
}

TEST_CASE("a peek at the records fails at a record that cannot be read, and skips a newer version's", "[failure:230]") {
  Disk kept;
  REQUIRE(kept.run(kept.store->save(test::sample_record())));
  const std::string records = kept.folder.path() + "/volumes/";
  REQUIRE(write_durably(records + "new.json", R"({"version":99})", 0600));
  const auto seen = kept.run(kept.store->peek({}));
  REQUIRE(seen);
  CHECK(seen->size() == 1);
  REQUIRE(std::filesystem::create_directory(records + "unreadable.json"));
  const auto failed = kept.run(kept.store->peek({}));
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == errc::unavailable);
  CHECK_THAT(failed.error().text, ContainsSubstring(records + "unreadable.json"));
}

TEST_CASE("loading sets a corrupt record aside, leaves a newer version's record in place, and reads the others") {
  Disk kept;
  REQUIRE(kept.run(kept.store->save(test::sample_record())));
  REQUIRE(write_durably(kept.folder.path() + "/volumes/bad.json", "{}", 0600));
  REQUIRE(write_durably(kept.folder.path() + "/volumes/new.json", R"({"version":99})", 0600));
  const auto loaded = kept.run(kept.store->load());
  REQUIRE(loaded);
  REQUIRE(loaded->records.size() == 1);
  CHECK(loaded->records.front() == test::sample_record());
  CHECK(loaded->set_aside.size() == 1);
  CHECK(loaded->newer.size() == 1);
  CHECK_FALSE(std::filesystem::exists(kept.folder.path() + "/volumes/bad.json"));
  CHECK(std::filesystem::exists(kept.folder.path() + "/volumes/new.json"));
}

TEST_CASE(
    "a record that cannot be read stays in place and fails the load with an error that names the file, and loads once "
    "it is readable",
    "[failure:20]") {
  Disk kept;
  REQUIRE(kept.run(kept.store->save(test::sample_record())));
  const std::string path = kept.folder.path() + "/volumes/" + sha256_hex(test::sample_record().volume_id) + ".json";
  std::filesystem::rename(path, path + ".away");
  std::filesystem::create_directory(path);
  const auto loaded = kept.run(kept.store->load());
  REQUIRE_FALSE(loaded);
  CHECK_THAT(loaded.error().text, ContainsSubstring(path));
  CHECK(std::filesystem::remove(path));
  std::filesystem::rename(path + ".away", path);
  const auto again = kept.run(kept.store->load());
  REQUIRE(again);
  CHECK(again->set_aside.empty());
  CHECK(again->records.size() == 1);
}

TEST_CASE("a record that cannot be read is not overwritten") {
  Disk kept;
  const std::string path = kept.folder.path() + "/volumes/" + sha256_hex(test::sample_record().volume_id) + ".json";
  REQUIRE(std::filesystem::create_directory(path));
  const auto saved = kept.run(kept.store->save(test::sample_record()));
  REQUIRE_FALSE(saved);
  CHECK_THAT(saved.error().text, ContainsSubstring("reading " + path));
}

// field report 1
TEST_CASE("a record and its key change to another user as one, whichever step of it was the last", "[failure:220]") {
  Disk kept;
  const std::string path = kept.folder.path() + "/keys/" + sha256_hex(test::sample_record().volume_id);
  REQUIRE(kept.run(kept.store->save_with_key(test::sample_record(), Secret("old"))));
  auto renamed = test::sample_record();
  renamed.user = "node.1";
  const std::string next = "node.1\n" + sha256_hex("old") + "\nnew";
  SECTION("all of them") {
    REQUIRE(kept.run(kept.store->save_with_key(renamed, Secret("new"))));
    CHECK(*read_file(path, 100) == "new");
    CHECK_FALSE(std::filesystem::exists(path + ".next"));
    CHECK(kept.run(kept.store->load_key(renamed))->reveal() == "new");
  }
  SECTION("the new key beside the old one") {
    REQUIRE(write_durably(path + ".next", next, 0600));
    CHECK(kept.run(kept.store->load_key(test::sample_record()))->reveal() == "old");
    REQUIRE(kept.run(kept.store->load()));
    CHECK_FALSE(std::filesystem::exists(path + ".next"));
  }
  SECTION("the record") {
    kept.write_record(renamed);
    REQUIRE(write_durably(path + ".next", next, 0600));
    CHECK(kept.run(kept.store->load_key(renamed))->reveal() == "new");
    REQUIRE(kept.run(kept.store->load()));
    CHECK(*read_file(path, 100) == "new");  // as 0.1.0 reads it
    CHECK_FALSE(std::filesystem::exists(path + ".next"));
  }
}

TEST_CASE("a key that an older version wrote outranks the one that lay beside its file before") {
  Disk kept;
  const std::string path = kept.folder.path() + "/keys/" + sha256_hex(test::sample_record().volume_id);
  REQUIRE(kept.run(kept.store->save_with_key(test::sample_record(), Secret("old"))));
  auto renamed = test::sample_record();
  renamed.user = "node.1";
  kept.write_record(renamed);
  REQUIRE(write_durably(path + ".next", "node.1\n" + sha256_hex("old") + "\nnew", 0600));
  REQUIRE(write_durably(path, "newer", 0600));
  CHECK(kept.run(kept.store->load_key(renamed))->reveal() == "newer");
  REQUIRE(kept.run(kept.store->load()));
  CHECK(*read_file(path, 100) == "newer");
  CHECK_FALSE(std::filesystem::exists(path + ".next"));
}

TEST_CASE("a record that is written without a key keeps the user whose key is there") {
  Disk kept;
  REQUIRE(kept.run(kept.store->save_with_key(test::sample_record(), Secret("old"))));
  auto renamed = test::sample_record();
  renamed.user = "node.1";
  renamed.device.size += 4096;
  REQUIRE(kept.run(kept.store->save(renamed)));
  const auto loaded = kept.run(kept.store->load());
  REQUIRE(loaded);
  REQUIRE(loaded->records.size() == 1);
  CHECK(loaded->records.front().user == test::sample_record().user);
  CHECK(loaded->records.front().device.size == renamed.device.size);
}

TEST_CASE("a record that is written over another volume's takes nothing of that", "[failure:20]") {
  Disk kept;
  auto other = test::sample_record();
  other.volume_id = "another";
  other.user = "stranger";
  const std::string path = kept.folder.path() + "/volumes/" + sha256_hex(test::sample_record().volume_id) + ".json";
  REQUIRE(write_durably(path, plan::encode(other), 0600));
  REQUIRE(kept.run(kept.store->save(test::sample_record())));
  const auto seen = kept.run(kept.store->peek({}));
  REQUIRE(seen);
  CHECK(*seen == std::vector{test::sample_record()});
}

TEST_CASE("a key file that is empty is no key, and a folder of keys or records that somebody removed is made again") {
  Disk kept;
  const auto record = test::sample_record();
  const std::string path = kept.folder.path() + "/keys/" + sha256_hex(record.volume_id);
  REQUIRE(kept.run(kept.store->save_with_key(record, Secret("key"))));
  REQUIRE(write_durably(path, "", 0600));
  const auto empty = kept.run(kept.store->load_key(record));
  REQUIRE_FALSE(empty);
  CHECK_THAT(empty.error().text, ContainsSubstring(path + " is empty"));
  for (const char* folder : {"/keys", "/volumes"}) {
    std::filesystem::remove_all(kept.folder.path() + folder);
    CHECK(kept.run(kept.store->drop_key("another")));
    REQUIRE(kept.run(kept.store->save_with_key(record, Secret("key"))));
    CHECK(kept.run(kept.store->load_key(record))->reveal() == "key");
    CHECK(kept.run(kept.store->peek({}))->size() == 1);
  }
}

TEST_CASE("a key that is dropped leaves nothing of itself") {
  Disk kept;
  const std::string path = kept.folder.path() + "/keys/" + sha256_hex(test::sample_record().volume_id);
  REQUIRE(kept.run(kept.store->save_with_key(test::sample_record(), Secret("old"))));
  REQUIRE(write_durably(path + ".next", "node.1\nnew", 0600));
  REQUIRE(kept.run(kept.store->drop_key(test::sample_record().volume_id)));
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_FALSE(std::filesystem::exists(path + ".next"));
}

TEST_CASE("a newer version's record is not overwritten", "[failure:21]") {
  Disk kept;
  const std::string path = kept.folder.path() + "/volumes/" + sha256_hex(test::sample_record().volume_id) + ".json";
  REQUIRE(write_durably(path, R"({"version":99})", 0600));
  const auto saved = kept.run(kept.store->save(test::sample_record()));
  REQUIRE_FALSE(saved);
  CHECK(saved.error().code == errc::state_newer);
  CHECK_THAT(saved.error().text, ContainsSubstring(path));
  CHECK(*read_file(path, 100) == R"({"version":99})");
}
