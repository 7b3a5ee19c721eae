#include "short_entries.hpp"

#include <filesystem>
#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using rbd::Renewal;
using Step = Renewal::Step;

namespace {

const std::chrono::sys_seconds kEnd{std::chrono::seconds(1'800'000'000)};
const rbd::ShortEntry kShort{"5e1f", "fsid", "lab", "10.0.0.7:0/5", kEnd};

std::vector<image::BlocklistEntry> listed(std::chrono::seconds later = {}) {
  auto entry = image::entry_of_client(kShort.client).value();
  entry.until = kEnd + later;
  return {entry};
}

}  // namespace

TEST_CASE("a short entry is checked rarely, and often around its end") {
  CHECK(rbd::next_renewal(kShort, listed(), kEnd - 1h, true).step == Step::wait);
  CHECK(rbd::next_renewal(kShort, listed(), kEnd - 1h, true).look_again == 30s);
  CHECK(rbd::next_renewal(kShort, listed(), kEnd - 25s, true).look_again == 15s);
  CHECK(rbd::next_renewal(kShort, listed(), kEnd - 5s, true).look_again == 200ms);
  CHECK(rbd::next_renewal(kShort, listed(), kEnd + 5s, true).look_again == 200ms);
}

TEST_CASE("a short entry that outlasts its end is checked less often") {
  CHECK(rbd::next_renewal(kShort, listed(), kEnd + 2min, true).look_again == 5s);
}

TEST_CASE("a short entry that has ended is added again") {
  CHECK(rbd::next_renewal(kShort, {}, kEnd + 1s, true).step == Step::add);
  CHECK(rbd::next_renewal(kShort, {}, kEnd + 24h, true).step == Step::add);
}

TEST_CASE("the monitors' clock goes on while this machine sleeps") {
  const rbd::MonitorsClock read{kEnd - 1h, time_point(10s), kEnd - 2h};
  CHECK(read.now(time_point(20s), kEnd - 2h + 10s) == kEnd - 1h + 10s);
  CHECK(read.now(time_point(20s), kEnd - 2h + 50min) == kEnd - 10min);
  // Somebody set the wall clock back.
  CHECK(read.now(time_point(40s), kEnd - 5h) == kEnd - 1h + 30s);
}

TEST_CASE("a short entry that somebody took away before its end is not added again", "[failure:164]") {
  CHECK(rbd::next_renewal(kShort, {}, kEnd - 30min, true).step == Step::forget);
}

TEST_CASE("a short entry that is gone is added again if nobody knows the monitors' clock") {
  CHECK(rbd::next_renewal(kShort, {}, kEnd - 30min, false).step == Step::add);
}

TEST_CASE("a short entry is forgotten once it lasts for a week, and not for another hour") {
  CHECK(rbd::next_renewal(kShort, listed(7 * 24h), kEnd, true).step == Step::forget);
  CHECK(rbd::next_renewal(kShort, listed(1h), kEnd, true).step == Step::wait);
}

TEST_CASE("notes of short entries survive a write and a read") {
  const test::Folder folder;
  REQUIRE(rbd::save_short_entry(folder.path(), kShort));
  const auto loaded = rbd::load_short_entries(folder.path());
  REQUIRE(loaded.all.size() == 1);
  CHECK(loaded.all.front().client == kShort.client);
  CHECK(loaded.all.front().fsid == kShort.fsid);
  CHECK(loaded.all.front().until == kEnd);
  CHECK_FALSE(loaded.lost);
  CHECK_FALSE(loaded.unread);
  REQUIRE(rbd::forget_short_entry(folder.path(), kShort.uuid));
  CHECK(rbd::load_short_entries(folder.path()).all.empty());
}

TEST_CASE("a malformed note of a short entry counts as lost, and stays while the others are read", "[failure:164]") {
  const test::Folder folder;
  REQUIRE(rbd::save_short_entry(folder.path(), kShort));
  const std::string odd = folder.path() + "/odd.short";
  std::ofstream(odd) << GENERATE(std::string("{}"), std::string(), std::string(5000, ' '));
  const auto loaded = rbd::load_short_entries(folder.path());
  CHECK(loaded.lost);
  CHECK_FALSE(loaded.unread);
  CHECK(loaded.all.size() == 1);
  CHECK(std::filesystem::exists(odd));
}

TEST_CASE("a note of a short entry that cannot be read now is not lost, and the others are read") {
  const test::Folder folder;
  REQUIRE(rbd::save_short_entry(folder.path(), kShort));
  std::filesystem::create_directory(folder.path() + "/odd.short");
  const auto loaded = rbd::load_short_entries(folder.path());
  REQUIRE(loaded.unread);
  CHECK(loaded.unread->code == errc::unavailable);
  CHECK_FALSE(loaded.lost);
  CHECK(loaded.all.size() == 1);
  CHECK(rbd::load_short_entries(folder.path() + "/nowhere").unread);
}
