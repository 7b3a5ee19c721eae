// Claims on disk, lock files, and the names of folders.
#include <sys/stat.h>

#include <fstream>

#include "claim_json.hpp"
#include "corbd/core/file.hpp"
#include "layout.hpp"
#include "locks.hpp"
#include "repeat.hpp"
#include "support/control_thread.hpp"
#include "support/places.hpp"
#include "world.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

struct Store {
  Folder folder;
  ControlThread thread;
  std::unique_ptr<Clock> clock = make_real_clock(thread.control());
  BlockingPool pool{thread.control(), *clock, 1};
  std::unique_ptr<manager::Claims> claims = manager::make_claims(pool, folder.path() + "/claims");

  Store() { thread.start(); }
  template <class T>
  T get(task<T> work) {
    std::promise<T> done;
    asio::co_spawn(thread.control(), std::move(work),
                   [&](std::exception_ptr, T value) { done.set_value(std::move(value)); });
    return done.get_future().get();
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() + "/claims"))
      all.push_back(entry.path());
    return all;
  }
};

Claim sample() {
  Claim claim;
  claim.phase = Claim::Phase::unmounting;
  claim.volume = {"plugin", "rbd/data \"1\"", "space", "name"};
  claim.usage = {"MULTI_NODE_READER_ONLY", AccessType::filesystem, true, "xfs", {"a", "b"}};
  claim.user = "user";
  claim.staging = "/root/staging";
  claim.target = "/srv/a";
  claim.mode_before = 01755;
  claim.owner_before = {70, 71};
  claim.again = true;
  claim.boot_id = "8f1c";
  claim.shown = "/dev/nbd0 (43:0)";
  claim.volume_context = {{"pool", "rbd"}};
  claim.publish_context = {{"k", "v"}};
  claim.notes = {{"keyring", "/etc/ceph/k"}};
  return claim;
}

}  // namespace

// Printed by 0.1.0's encode(). The file never changes (docs/compatibility.md).
TEST_CASE("a claim of 0.1.0 is read, and today's is the same to the byte") {
  const auto bytes = read_file(tests_folder() + "/unit/manager/golden/claim-0.1.0.json", 1 << 16);
  REQUIRE(bytes);
  const auto read = manager::decode(*bytes);
  REQUIRE(read);
  CHECK(read->target == sample().target);
  CHECK(read->mode_before == sample().mode_before);
  CHECK(read->volume.external_id == sample().volume.external_id);
  CHECK(manager::encode(*read) == *bytes);
  CHECK(manager::encode(sample()) == *bytes);
}

TEST_CASE("a claim survives a write and a read, and removing it removes its file") {
  Store store;
  CHECK(store.get(store.claims->load())->claims.empty());
  Claim claim = sample();
  claim.folder_before = {12, 3'000'000'004};
  REQUIRE(store.get(store.claims->save(claim)));
  auto loaded = store.get(store.claims->load());
  REQUIRE(loaded);
  REQUIRE(loaded->claims.size() == 1);
  CHECK(manager::encode(loaded->claims[0]) == manager::encode(claim));
  CHECK(loaded->claims[0].usage == claim.usage);
  CHECK(loaded->claims[0].volume == claim.volume);
  CHECK(loaded->claims[0].mode_before == 01755U);
  CHECK(loaded->claims[0].owner_before == manager::Owner{70, 71});
  CHECK(loaded->claims[0].folder_before == FolderIdentity{12, 3'000'000'004});
  CHECK(loaded->claims[0].again);
  CHECK(loaded->claims[0].boot_id == "8f1c");
  CHECK(loaded->claims[0].shown == "/dev/nbd0 (43:0)");
  CHECK(loaded->claims[0].notes == claim.notes);
  std::string older = manager::encode(claim);
  const std::string owner = R"(,"folder_owner":{"uid":70,"gid":71})";
  older.erase(older.find(owner), owner.size());
  REQUIRE(manager::decode(older));
  CHECK_FALSE(manager::decode(older)->owner_before);
  struct stat found{};
  REQUIRE(::stat(store.files().at(0).c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  REQUIRE(store.get(store.claims->drop("/srv/a")));
  CHECK(store.files().empty());
}

TEST_CASE("a claim stores the file below a raw block mount under names that an older version does not read") {
  Claim claim = sample();
  claim.usage.attachment = manager::AccessType::block;
  const std::string text = manager::encode(claim);
  CHECK(text.find("folder_") == text.npos);
  const auto back = manager::decode(text);
  REQUIRE(back);
  CHECK(back->mode_before == claim.mode_before);
  CHECK(back->owner_before == claim.owner_before);
}

TEST_CASE("a torn claim is set aside, and the others are read") {
  Store store;
  REQUIRE(store.get(store.claims->save(sample())));
  const std::string whole = manager::encode(sample());
  const auto torn = GENERATE_COPY(std::string(), whole.substr(0, whole.size() / 2), std::string("{\"version\":1}"),
                                  std::string("{\"version\":1,\"phase\":7}"), std::string("\0\0\0", 3));
  const std::string path = store.folder.path() + "/claims/torn.json";
  std::ofstream(path) << torn;
  const auto loaded = store.get(store.claims->load());
  REQUIRE(loaded);
  CHECK(loaded->claims.size() == 1);
  REQUIRE(loaded->set_aside.size() == 1);
  CHECK_THAT(loaded->set_aside[0], ContainsSubstring("torn.json.corrupt-"));
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(store.get(store.claims->load())->set_aside.empty());
}

TEST_CASE("a copy of a claim under another name counts for nothing and stays") {
  Store store;
  REQUIRE(store.get(store.claims->save(sample())));
  const std::string copy = store.folder.path() + "/claims/copy.json";
  std::filesystem::copy_file(store.files().at(0), copy);
  CHECK(store.get(store.claims->load())->claims.size() == 1);
  REQUIRE(store.get(store.claims->drop(sample().target)));
  const auto left = store.get(store.claims->load());
  REQUIRE(left);
  CHECK(left->claims.empty());
  CHECK(left->set_aside.empty());
  CHECK(std::filesystem::exists(copy));
}

TEST_CASE("a newer version's claim stays, and makes loading the claims fail") {
  Store store;
  REQUIRE(store.get(store.claims->save(sample())));
  const std::string path = store.folder.path() + "/claims/newer.json";
  std::ofstream(path) << "{\"version\":2,\"unheard\":true}";
  CHECK(store.get(store.claims->load()).error().code == errc::state_newer);
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("a lock has one holder, waiters learn its pid, and its file goes with it") {
  Loop loop;
  Folder folder;
  const auto take = [&](Until until) {
    return loop.run(manager::lock_file(loop.control(), loop.clock, folder.path(), "name", "volume v", until));
  };
  {
    const auto first = take({});
    REQUIRE(first);
    const auto second = take({loop.clock.now() + 1s});
    REQUIRE_FALSE(second);
    CHECK(second.error().code == errc::timed_out);
    CHECK_THAT(second.error().text, ContainsSubstring("volume v"));
    CHECK_THAT(second.error().text, ContainsSubstring(std::to_string(::getpid())));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(take({}));
}

TEST_CASE("a lock whose file goes with its holder has one holder at a time, however many want it") {
  Folder folder;
  std::atomic<int> inside{0}, wrong{0};
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i)
    all.emplace_back([&] {
      Loop loop;
      for (int round = 0; round < 2000; ++round) {
        const auto taken =
            loop.run(manager::lock_file(loop.control(), loop.clock, folder.path(), "name", "volume v", {}));
        if (!taken || ++inside != 1) ++wrong;
        --inside;
      }
    });
  for (auto& one : all) one.join();
  CHECK(wrong == 0);
}

TEST_CASE("names of folders are harmless, and no two names share one") {
  using manager::folder_name;
  CHECK(folder_name("data-1.x") == "data-1.x");
  for (const std::string& bad :
       std::vector<std::string>{"", ".", "..", "a/b", "../../etc", "a~b", std::string(300, 'x'), "a\nb"}) {
    const std::string made = folder_name(bad);
    CHECK_FALSE(made.empty());
    CHECK(made.front() != '.');
    CHECK(made.find('/') == made.npos);
    CHECK(made.size() <= 64);
    CHECK(folder_name(made) != made);
  }
  CHECK(folder_name("a/b") != folder_name("a_b"));
  CHECK(folder_name("a/b") != folder_name("a:b"));
}

TEST_CASE("the name of a usage is Nomad's, and every part of the usage changes it") {
  manager::Usage usage;
  CHECK(folder_name(usage) == "rw-file-system-single-node-writer");
  std::set<std::string> all{folder_name(usage)};
  usage.fstype = "ext4";
  all.insert(folder_name(usage));
  usage.mount_options = {"noatime"};
  all.insert(folder_name(usage));
  usage.mount_options = {"noatime", "nodev"};
  all.insert(folder_name(usage));
  usage.read_only = true;
  all.insert(folder_name(usage));
  usage.attachment = AccessType::block;
  all.insert(folder_name(usage));
  usage.access_mode = "MULTI_NODE_READER_ONLY";
  all.insert(folder_name(usage));
  CHECK(all.size() == 7);
  Mount mount = wanted();
  mount.volume.space = "../x";
  mount.volume.name = "rbd/db";
  const std::string path = manager::staging_path("/r", mount.volume, usage);
  CHECK(path.starts_with("/r/staging/"));
  CHECK(std::ranges::count(path, '/') == 5);
  CHECK(manager::default_target("/r", mount).starts_with("/r/per-alloc/a/rbd_db~"));
}

TEST_CASE("three tries for what may pass, none for what cannot, any number for what is pending") {
  manager::Tries tries;
  CHECK(manager::pause_after(errc::unavailable, tries, 0.999) == 99ms);
  CHECK(manager::pause_after(errc::timed_out, tries, 0.999) == 199ms);
  CHECK_FALSE(manager::pause_after(errc::exhausted, tries, 0.999));
  for (const auto code : {errc::internal, errc::invalid_argument, errc::not_found, errc::failed_precondition,
                          errc::already_exists, errc::unimplemented, errc::cancelled}) {
    manager::Tries none;
    CHECK_FALSE(manager::pause_after(code, none, 0.5));
  }
  manager::Tries pending;
  for (int i = 0; i < 1000; ++i) REQUIRE(manager::pause_after(errc::busy, pending, 0.5));
}
