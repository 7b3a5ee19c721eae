#include "incarnation.hpp"

#include <filesystem>
#include <fstream>

#include "corbd/core/file.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/places.hpp"
#include "support/small_disk.hpp"

using namespace corbd;
using rbd::Incarnation;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kNow = 1800000000;

Incarnation sample(const std::string& uuid) {
  return {Incarnation::State::live, uuid, "fsid-1", "lab", {"10.0.0.1:0/77"}, 0};
}

void write(const std::string& path, std::string_view text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("a saved incarnation is dead for the next start", "[rule:2][rule:I5]") {
  const test::Folder folder;
  const std::string dir = folder.path() + "/incarnations";
  REQUIRE(rbd::load_incarnations(dir, kNow, "boot-1"));
  REQUIRE(rbd::save_incarnation(dir, sample("a")));
  const auto loaded = rbd::load_incarnations(dir, kNow, "boot-1");
  REQUIRE(loaded);
  REQUIRE(loaded->all.size() == 1);
  CHECK(loaded->all[0].state == Incarnation::State::dead);
  CHECK(loaded->all[0].fsid == "fsid-1");
  CHECK(loaded->all[0].cluster_id == "lab");
  CHECK(loaded->all[0].addresses == std::vector<std::string>{"10.0.0.1:0/77"});
}

TEST_CASE("a fenced incarnation is remembered until its blocklisting ends") {
  const test::Folder folder;
  auto fenced = sample("a");
  fenced.state = Incarnation::State::fenced;
  fenced.fenced_at = kNow;
  REQUIRE(rbd::save_incarnation(folder.path(), fenced));
  const auto day7 = rbd::load_incarnations(folder.path(), kNow + 7 * 86400, "boot-1");
  REQUIRE(day7);
  REQUIRE(day7->all.size() == 1);
  CHECK(day7->all[0].state == Incarnation::State::fenced);
  const auto later = rbd::load_incarnations(folder.path(), kNow + 7 * 86400 + 1, "boot-1");
  REQUIRE(later);
  CHECK(later->all.empty());
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("an incarnation that was fenced in this boot is remembered whatever the clock shows",
          "[failure:43][rule:2]") {
  const test::Folder folder;
  auto fenced = sample("a");
  fenced.state = Incarnation::State::fenced;
  fenced.fenced_at = 0;  // the clock of a machine without a battery, before it was set
  fenced.boot_id = "boot-1";
  REQUIRE(rbd::save_incarnation(folder.path(), fenced));
  CHECK(rbd::load_incarnations(folder.path(), kNow, "boot-1")->all.size() == 1);
  CHECK(rbd::load_incarnations(folder.path(), kNow, "boot-2")->all.empty());
}

namespace {

/// The n-th of an agent that dies again and again.
Incarnation fenced_sample(int n, const std::string& boot_id) {
  return {Incarnation::State::fenced,
          "uuid-" + std::to_string(n),
          "fsid-1",
          "lab",
          {"10.0.0.1:0/" + std::to_string(n)},
          kNow + n,
          boot_id};
}

std::size_t files_in(const std::string& dir) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("thousands of fenced incarnations of one boot have a few files, which know all their addresses",
          "[failure:163]") {
  const test::Folder folder{"/dev/shm"};
  rbd::Incarnations known;
  for (int n = 0; n < 3000; ++n) {
    REQUIRE(rbd::save_incarnation(folder.path(), fenced_sample(n, "boot-1")));
    if (n % 100 != 99) continue;
    // A start.
    auto loaded = rbd::load_incarnations(folder.path(), kNow, "boot-1");
    REQUIRE(loaded);
    rbd::merge_fenced(folder.path(), loaded->all);
    CHECK(loaded->all.size() == files_in(folder.path()));
    CHECK(loaded->all.size() < 80);
  }
  const auto loaded = rbd::load_incarnations(folder.path(), kNow, "boot-1");
  REQUIRE(loaded);
  CHECK(loaded->set_aside.empty());
  known.take_over(loaded->all, true);
  for (int n = 0; n < 3000; ++n) {
    const auto* one = known.find("fsid-1", "10.0.0.1:0/" + std::to_string(n));
    REQUIRE(one != nullptr);
    CHECK(one->state == Incarnation::State::fenced);
    CHECK(one->fenced_at >= kNow + n);
  }
  CHECK(rbd::load_incarnations(folder.path(), kNow + 8 * 86400, "boot-2")->all.empty());
}

TEST_CASE("a few fenced incarnations, those of another boot, and those that are not fenced keep their files") {
  const test::Folder folder;
  std::vector<Incarnation> all;
  for (int n = 0; n < 120; ++n) {
    Incarnation one = fenced_sample(n, n % 2 == 0 ? "boot-1" : "boot-2");
    if (n >= 110) one.state = Incarnation::State::dead;
    REQUIRE(rbd::save_incarnation(folder.path(), one));
    all.push_back(std::move(one));
  }
  rbd::merge_fenced(folder.path(), all);
  CHECK(all.size() == 120);
  CHECK(files_in(folder.path()) == 120);
}

TEST_CASE("the files of fenced incarnations stay if their common file cannot be written") {
  const test::Folder folder;
  std::vector<Incarnation> all;
  for (int n = 0; n < 100; ++n) all.push_back(fenced_sample(n, "boot-1"));
  rbd::merge_fenced(folder.path() + "/gone", all);
  CHECK(all.size() == 100);
}

TEST_CASE("a full disk takes as many incarnations as there are spare files, and no more", "[failure:18][rule:I5]") {
  const auto disk = test::SmallDisk::mount(512);
  if (!disk) return;
  REQUIRE(rbd::load_incarnations(disk->path(), kNow, "boot-1"));
  rbd::keep_spares(disk->path());
  disk->fill();
  std::size_t saved = 0;
  while (saved < 100 && rbd::save_incarnation(disk->path(), sample(std::to_string(saved)))) ++saved;
  CHECK(saved == 16);
  const auto loaded = rbd::load_incarnations(disk->path(), kNow, "boot-1");
  REQUIRE(loaded);
  CHECK(loaded->all.size() == 16);
  CHECK(loaded->set_aside.empty());
  fs::remove(disk->path() + "/filling");
  rbd::keep_spares(disk->path());
  disk->fill();
  CHECK(rbd::save_incarnation(disk->path(), sample("later")));
}

// Printed by 0.1.0's to_json(). The file never changes (docs/compatibility.md).
TEST_CASE("an incarnation file of 0.1.0 is read, and today's is the same to the byte") {
  const auto bytes = read_file(test::tests_folder() + "/unit/rbd/golden/incarnation-0.1.0.json", 1 << 16);
  REQUIRE(bytes);
  const auto read = rbd::parse_incarnation(*bytes);
  REQUIRE(read);
  CHECK(read->state == Incarnation::State::fenced);
  CHECK(read->fenced_at == kNow);
  CHECK(read->fsid == "fsid-1");
  CHECK(read->cluster_id == "lab");
  CHECK(read->addresses == std::vector<std::string>{"10.0.0.1:0/77"});
  CHECK(read->boot_id == "boot-1");
  CHECK(rbd::to_json(*read) == *bytes);
}

TEST_CASE("a client that ended well is told from one that was blocklisted, also once many files became one") {
  const test::Folder folder;
  for (int n = 0; n < 200; ++n) {
    auto one = fenced_sample(n, "boot-1");
    one.ended = n % 2 == 0;
    REQUIRE(rbd::save_incarnation(folder.path(), one));
  }
  auto loaded = rbd::load_incarnations(folder.path(), kNow, "boot-1");
  REQUIRE(loaded);
  rbd::merge_fenced(folder.path(), loaded->all);
  loaded = rbd::load_incarnations(folder.path(), kNow, "boot-1");
  REQUIRE(loaded->all.size() == 2);
  rbd::Incarnations known;
  known.take_over(loaded->all, true);
  for (int n = 0; n < 200; ++n) CHECK(known.find("fsid-1", "10.0.0.1:0/" + std::to_string(n))->ended == (n % 2 == 0));
}

TEST_CASE("of the clients without an entry in the blocklist, only those that need one are blocklisted anew") {
  rbd::Incarnations known;
  for (const int n : {1, 2, 3}) known.add(fenced_sample(n, "boot-1"));
  auto ended = fenced_sample(4, "boot-1");
  ended.ended = true;
  known.add(ended);
  auto elsewhere = fenced_sample(5, "boot-1");
  elsewhere.fsid = "fsid-2";
  known.add(elsewhere);
  image::Blocklist now{"fsid-1", {image::entry_of_client("10.0.0.1:0/1").value()}};
  std::vector<std::string> unlisted;
  for (const auto& one : known.unlisted(now)) unlisted.push_back(one.uuid);
  CHECK(unlisted == std::vector<std::string>{"uuid-2", "uuid-3"});
}

TEST_CASE("an incarnation file of a newer version is an error and stays, because nobody would fence its client") {
  const test::Folder folder;
  const std::string path = folder.path() + "/a.json";
  write(path, R"({"version":2,"who":"a"})");
  const auto loaded = rbd::load_incarnations(folder.path(), 0, "boot");
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().code == errc::state_newer);
  CHECK(fs::exists(path));
}

TEST_CASE("a corrupt incarnation file is set aside and kept") {
  const test::Folder folder;
  const std::string bad = GENERATE("", "{}", "[]", R"({"uuid":"bad","fsid":"f","cluster_id":"c","addresses":[]})",
                                   R"({"uuid":"bad","fsid":"f","cluster_id":"c","addresses":["nonsense"]})",
                                   R"({"uuid":"other","fsid":"f","cluster_id":"c","addresses":["10.0.0.1:0/1"]})");
  write(folder.path() + "/bad.json", bad);
  REQUIRE(rbd::save_incarnation(folder.path(), sample("good")));
  const auto loaded = rbd::load_incarnations(folder.path(), kNow, "boot-1");
  REQUIRE(loaded);
  CHECK(loaded->all.size() == 1);
  REQUIRE(loaded->set_aside == std::vector<std::string>{folder.path() + "/bad.json.corrupt-" + std::to_string(kNow)});
  CHECK(fs::exists(loaded->set_aside[0]));
  CHECK_FALSE(fs::exists(folder.path() + "/bad.json"));
}

TEST_CASE("a half-written temporary file does not count as an incarnation") {
  const test::Folder folder;
  write(folder.path() + "/x.json.tmp", "{");
  const auto loaded = rbd::load_incarnations(folder.path(), kNow, "boot-1");
  REQUIRE(loaded);
  CHECK(loaded->all.empty());
  CHECK(loaded->set_aside.empty());
}

TEST_CASE("an unreadable incarnations folder is an error, because the clients to fence are then unknown") {
  const test::Folder folder;
  write(folder.path() + "/file", "");
  CHECK_FALSE(rbd::load_incarnations(folder.path() + "/file/sub", kNow, "boot-1"));
}

TEST_CASE("only dead incarnations of the same cluster are to be fenced") {
  rbd::Incarnations all;
  auto one = sample("a");
  all.add(one);
  CHECK(all.unfenced("fsid-1").empty());
  all.set_state("a", Incarnation::State::dead);
  CHECK(all.unfenced("fsid-1").size() == 1);
  CHECK(all.unfenced("fsid-2").empty());
  all.set_state("a", Incarnation::State::fenced, kNow);
  CHECK(all.unfenced("fsid-1").empty());
}

TEST_CASE("a predecessor's clients yield until it has ended, and then have the state that their files say") {
  using State = Incarnation::State;
  rbd::Incarnations all;
  auto own = sample("own"), ends_well = sample("ends-well"), dies = sample("dies"), forgotten = sample("forgotten"),
       fenced = sample("fenced");
  own.state = State::live;
  for (auto* one : {&ends_well, &dies, &forgotten}) one->state = State::dead;
  fenced.state = State::fenced;
  all.add(own);
  const auto state_of = [&](const std::string& uuid) -> std::optional<State> {
    for (const auto& one : all.all())
      if (one.uuid == uuid) return one.state;
    return std::nullopt;
  };
  own.state = State::dead;  // as its file says
  all.take_over({own, ends_well, dies, forgotten, fenced}, false);
  CHECK(state_of("own") == State::live);
  CHECK(state_of("ends-well") == State::yields);
  CHECK(state_of("fenced") == State::fenced);
  CHECK(all.unfenced("fsid-1").empty());

  ends_well.state = State::fenced;
  auto made_meanwhile = sample("made-meanwhile");
  made_meanwhile.state = State::dead;
  all.take_over({own, ends_well, dies, fenced, made_meanwhile}, true);
  CHECK(state_of("own") == State::live);
  CHECK(state_of("ends-well") == State::fenced);
  CHECK(state_of("dies") == State::dead);
  CHECK_FALSE(state_of("forgotten"));
  CHECK(state_of("made-meanwhile") == State::dead);
  CHECK(all.unfenced("fsid-1").size() == 2);
}

TEST_CASE("a predecessor's client counts as having given its images if it ended cleanly after it yielded") {
  using State = Incarnation::State;
  rbd::Incarnations all;
  auto before = sample("before"), crashed = sample("crashed"), earlier = sample("earlier");
  before.state = crashed.state = State::dead;
  earlier.state = State::fenced;
  all.take_over({before, crashed, earlier}, false);
  before.state = State::fenced;
  all.take_over({before, crashed, earlier}, true);
  for (const auto& one : all.all()) CHECK(one.handed_over == (one.uuid == "before"));
}

TEST_CASE("an address is recognised in every form, and only in its own cluster") {
  rbd::Incarnations all;
  all.add(sample("a"));
  CHECK(all.find("fsid-1", "10.0.0.1:0/77") != nullptr);
  CHECK(all.find("fsid-1", "v1:10.0.0.1:0/77") != nullptr);
  CHECK(all.find("fsid-2", "10.0.0.1:0/77") == nullptr);
  CHECK(all.find("fsid-1", "10.0.0.1:0/78") == nullptr);
  all.remove("a");
  CHECK(all.find("fsid-1", "10.0.0.1:0/77") == nullptr);
}

TEST_CASE("file names of incarnations differ") { CHECK(rbd::make_uuid() != rbd::make_uuid()); }
