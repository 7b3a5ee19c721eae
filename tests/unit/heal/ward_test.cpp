#include "corbd/heal/ward.hpp"

#include <algorithm>

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::heal;
using std::chrono::seconds;

namespace {

const time_point t0 = time_point() + std::chrono::hours(1);

Patient patient(const std::string& id, const std::string& cluster = "a", bool blocked = false, seconds since = {}) {
  Patient made;
  made.volume_id = id;
  made.cluster_id = cluster;
  made.blocked = blocked;
  made.since = t0 + since;
  return made;
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("volumes with requests that wait come first, then those longest without a server") {
  Ward ward({});
  ward.admit(patient("idle-late", "a", false, seconds(2)), t0);
  ward.admit(patient("idle-early", "a", false, seconds(1)), t0);
  ward.admit(patient("blocked-late", "a", true, seconds(9)), t0);
  ward.admit(patient("blocked-early", "a", true, seconds(8)), t0);
  CHECK(ward.start(t0) == Ids{"blocked-early", "blocked-late", "idle-early", "idle-late"});
}

TEST_CASE("tries that ended are counted by how") {
  Ward ward({});
  ward.admit(patient("1"), t0);
  ward.start(t0);
  ward.ended("1", Outcome::unreachable, t0, 0.5);
  ward.start(t0 + seconds(60));
  ward.ended("1", Outcome::healed, t0 + seconds(60), 0.5);
  ward.ended("1", Outcome::healed, t0 + seconds(60), 0.5);  // not under way any more
  CHECK(ward.ended() == Ward::Counts{1, 0, 0, 0, 1});
}

TEST_CASE("no more than at_once are under way, and the next comes when one ends") {
  Ward ward({.at_once = 2});
  for (const char* id : {"1", "2", "3"}) ward.admit(patient(id), t0);
  CHECK(ward.start(t0) == Ids{"1", "2"});
  CHECK(ward.start(t0).empty());
  ward.ended("1", Outcome::healed, t0, 0.5);
  CHECK(ward.start(t0) == Ids{"3"});
}

TEST_CASE("a volume that fails waits for its backoff, which grows, while others go on") {
  Ward ward({});
  ward.admit(patient("1"), t0);
  REQUIRE(ward.start(t0) == Ids{"1"});
  ward.ended("1", Outcome::failed, t0, 0.5);
  ward.admit(patient("2"), t0);
  CHECK(ward.start(t0) == Ids{"2"});
  const auto first = ward.next(t0);
  CHECK(first == t0 + std::chrono::milliseconds(500));
  REQUIRE(ward.start(first) == Ids{"1"});
  ward.ended("1", Outcome::failed, first, 0.5);
  CHECK(ward.next(first) == first + seconds(1));
}

TEST_CASE("a cluster that does not answer is asked by one volume at a time, another cluster is not held up") {
  Ward ward({});
  for (const char* id : {"a1", "a2", "a3"}) ward.admit(patient(id, "a"), t0);
  REQUIRE(ward.start(t0).size() == 3);
  for (const char* id : {"a1", "a2", "a3"}) ward.ended(id, Outcome::unreachable, t0, 0.5);
  CHECK(ward.waits_for_cluster("a"));
  CHECK(ward.start(t0).empty());
  ward.admit(patient("b1", "b"), t0);
  CHECK(ward.start(t0) == Ids{"b1"});
  const auto again = ward.next(t0);
  REQUIRE(again == t0 + std::chrono::milliseconds(500));
  CHECK(ward.start(again) == Ids{"a1"});
  CHECK(ward.start(again + seconds(100)).empty());
}

TEST_CASE(
    "a volume whose own placement group does not answer does not ask for its cluster again and again: the next does") {
  Ward ward({});
  ward.admit(patient("hangs", "a", true, seconds(-60)), t0);
  REQUIRE(ward.start(t0) == Ids{"hangs"});
  ward.ended("hangs", Outcome::unreachable, t0, 0.5);
  ward.admit(patient("healthy", "a", false, seconds(1)), t0);
  const auto again = ward.next(t0);
  REQUIRE(ward.start(again) == Ids{"healthy"});
  ward.ended("healthy", Outcome::healed, again, 0.5);
  CHECK_FALSE(ward.waits_for_cluster("a"));
}

TEST_CASE("when the cluster answers, all that waited for it go at once") {
  Ward ward({});
  for (const char* id : {"1", "2", "3"}) ward.admit(patient(id), t0);
  for (const auto& id : ward.start(t0)) ward.ended(id, Outcome::unreachable, t0, 0.5);
  const auto again = ward.next(t0);
  REQUIRE(ward.start(again) == Ids{"1"});
  ward.ended("1", Outcome::healed, again, 0.5);
  CHECK_FALSE(ward.waits_for_cluster("a"));
  CHECK(ward.start(again) == Ids{"2", "3"});
}

TEST_CASE("a volume that failed for a reason of its own keeps the breaker as it is") {
  Ward ward({});
  for (const char* id : {"1", "2"}) ward.admit(patient(id), t0);
  for (const auto& id : ward.start(t0)) ward.ended(id, Outcome::unreachable, t0, 0.5);
  const auto again = ward.next(t0);
  REQUIRE(ward.start(again) == Ids{"1"});
  ward.ended("1", Outcome::not_asked, again, 0.5);
  CHECK(ward.waits_for_cluster("a"));
  CHECK(ward.start(again) == Ids{"2"});
}

TEST_CASE("the backoff starts over after two minutes of health, and goes on before") {
  Ward ward({});
  ward.admit(patient("1"), t0);
  auto now = t0;
  for (int failure = 0; failure < 3; ++failure) {
    REQUIRE(ward.start(now) == Ids{"1"});
    ward.ended("1", Outcome::failed, now, 0.5);
    now = ward.next(now);
  }
  REQUIRE(ward.start(now) == Ids{"1"});
  ward.ended("1", Outcome::healed, now, 0.5);
  const bool long_healthy = GENERATE(true, false);
  now += long_healthy ? seconds(121) : seconds(1);
  ward.admit(patient("1"), now);
  CHECK(ward.start(now).empty() != long_healthy);
}

TEST_CASE("a volume that is down again as soon as it is healed is tried ever more seldom") {
  Ward ward({});
  auto now = t0;
  std::vector<duration> waits;
  for (int round = 0; round < 12; ++round) {
    ward.admit(patient("1"), now);
    const auto due = std::max(now, ward.next(now) == time_point::max() ? now : ward.next(now));
    waits.push_back(due - now);
    now = due;
    REQUIRE(ward.start(now) == Ids{"1"});
    ward.ended("1", Outcome::healed, now, 0.5);
  }
  CHECK(waits.front() == duration::zero());
  CHECK(std::ranges::is_sorted(waits));
  CHECK(waits.back() >= seconds(20));
  // One that nothing was done to was not healed in vain.
  ward.admit(patient("2"), now);
  REQUIRE(ward.start(now) == Ids{"2"});
  ward.ended("2", Outcome::well, now, 0.5);
  ward.admit(patient("2"), now);
  CHECK(ward.start(now) == Ids{"2"});
}

TEST_CASE("a volume asked for by hand is tried at once") {
  Ward ward({});
  ward.admit(patient("1"), t0);
  REQUIRE(ward.start(t0) == Ids{"1"});
  ward.ended("1", Outcome::failed, t0, 0.9);
  REQUIRE(ward.start(t0).empty());
  ward.hurry("1", t0);
  CHECK(ward.start(t0) == Ids{"1"});
}

TEST_CASE("300 volumes of a dead cluster cost it one question at a time, and none is forgotten") {
  Ward ward({});
  for (int i = 0; i < 300; ++i) ward.admit(patient(std::to_string(i)), t0);
  auto now = t0;
  int asked = 0;
  for (const auto end = t0 + std::chrono::minutes(10); now < end;) {
    const auto ids = ward.start(now);
    asked += static_cast<int>(ids.size());
    for (const auto& id : ids) ward.ended(id, Outcome::unreachable, now, 0.5);
    const auto next = ward.next(now);
    REQUIRE(next != time_point::max());
    now = next;
  }
  CHECK(asked < 16 + 40);
  int healed = 0;
  for (auto ids = ward.start(now); !ids.empty(); ids = ward.start(now))
    for (const auto& id : ids) {
      ward.ended(id, Outcome::healed, now, 0.5);
      ++healed;
    }
  CHECK(healed == 300);
}
