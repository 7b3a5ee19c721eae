#include "corbd/heal/heal_queue.hpp"

#include <algorithm>

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::heal;
using std::chrono::seconds;

namespace {

const time_point t0 = time_point() + std::chrono::hours(1);

HealEntry entry(const std::string& id, const std::string& cluster = "a", bool blocked = false, seconds since = {}) {
  HealEntry made;
  made.volume_id = id;
  made.cluster_id = cluster;
  made.blocked = blocked;
  made.since = t0 + since;
  return made;
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("volumes with requests that wait come first, then those longest without a server") {
  HealQueue queue({});
  queue.add(entry("idle-late", "a", false, seconds(2)), t0);
  queue.add(entry("idle-early", "a", false, seconds(1)), t0);
  queue.add(entry("blocked-late", "a", true, seconds(9)), t0);
  queue.add(entry("blocked-early", "a", true, seconds(8)), t0);
  CHECK(queue.start(t0) == Ids{"blocked-early", "blocked-late", "idle-early", "idle-late"});
}

TEST_CASE("finished tries are counted by outcome") {
  HealQueue queue({});
  queue.add(entry("1"), t0);
  queue.start(t0);
  queue.ended("1", Outcome::unreachable, t0, 0.5);
  queue.start(t0 + seconds(60));
  queue.ended("1", Outcome::healed, t0 + seconds(60), 0.5);
  queue.ended("1", Outcome::healed, t0 + seconds(60), 0.5);  // not under way any more
  CHECK(queue.ended() == HealQueue::Counts{1, 0, 0, 0, 1});
}

TEST_CASE("at most at_once tries run, and the next starts when one ends") {
  HealQueue queue({.at_once = 2});
  for (const char* id : {"1", "2", "3"}) queue.add(entry(id), t0);
  CHECK(queue.start(t0) == Ids{"1", "2"});
  CHECK(queue.start(t0).empty());
  queue.ended("1", Outcome::healed, t0, 0.5);
  CHECK(queue.start(t0) == Ids{"3"});
}

TEST_CASE("a volume that fails waits for its backoff, which grows, while others go on") {
  HealQueue queue({});
  queue.add(entry("1"), t0);
  REQUIRE(queue.start(t0) == Ids{"1"});
  queue.ended("1", Outcome::failed, t0, 0.5);
  queue.add(entry("2"), t0);
  CHECK(queue.start(t0) == Ids{"2"});
  const auto first = queue.next(t0);
  CHECK(first == t0 + std::chrono::milliseconds(500));
  REQUIRE(queue.start(first) == Ids{"1"});
  queue.ended("1", Outcome::failed, first, 0.5);
  CHECK(queue.next(first) == first + seconds(1));
}

TEST_CASE("a silent cluster is asked by one volume at a time and does not hold up another cluster") {
  HealQueue queue({});
  for (const char* id : {"a1", "a2", "a3"}) queue.add(entry(id, "a"), t0);
  REQUIRE(queue.start(t0).size() == 3);
  for (const char* id : {"a1", "a2", "a3"}) queue.ended(id, Outcome::unreachable, t0, 0.5);
  CHECK(queue.waits_for_cluster("a"));
  CHECK(queue.start(t0).empty());
  queue.add(entry("b1", "b"), t0);
  CHECK(queue.start(t0) == Ids{"b1"});
  const auto again = queue.next(t0);
  REQUIRE(again == t0 + std::chrono::milliseconds(500));
  CHECK(queue.start(again) == Ids{"a1"});
  CHECK(queue.start(again + seconds(100)).empty());
}

TEST_CASE("after a volume whose placement group is silent, another volume probes the cluster") {
  HealQueue queue({});
  queue.add(entry("hangs", "a", true, seconds(-60)), t0);
  REQUIRE(queue.start(t0) == Ids{"hangs"});
  queue.ended("hangs", Outcome::unreachable, t0, 0.5);
  queue.add(entry("healthy", "a", false, seconds(1)), t0);
  const auto again = queue.next(t0);
  REQUIRE(queue.start(again) == Ids{"healthy"});
  queue.ended("healthy", Outcome::healed, again, 0.5);
  CHECK_FALSE(queue.waits_for_cluster("a"));
}

TEST_CASE("once the cluster answers, all volumes that waited for it are tried at once") {
  HealQueue queue({});
  for (const char* id : {"1", "2", "3"}) queue.add(entry(id), t0);
  for (const auto& id : queue.start(t0)) queue.ended(id, Outcome::unreachable, t0, 0.5);
  const auto again = queue.next(t0);
  REQUIRE(queue.start(again) == Ids{"1"});
  queue.ended("1", Outcome::healed, again, 0.5);
  CHECK_FALSE(queue.waits_for_cluster("a"));
  CHECK(queue.start(again) == Ids{"2", "3"});
}

TEST_CASE("a volume that failed for a reason of its own keeps the breaker as it is") {
  HealQueue queue({});
  for (const char* id : {"1", "2"}) queue.add(entry(id), t0);
  for (const auto& id : queue.start(t0)) queue.ended(id, Outcome::unreachable, t0, 0.5);
  const auto again = queue.next(t0);
  REQUIRE(queue.start(again) == Ids{"1"});
  queue.ended("1", Outcome::not_asked, again, 0.5);
  CHECK(queue.waits_for_cluster("a"));
  CHECK(queue.start(again) == Ids{"2"});
}

TEST_CASE("the backoff starts over only after two minutes of health") {
  HealQueue queue({});
  queue.add(entry("1"), t0);
  auto now = t0;
  for (int failure = 0; failure < 3; ++failure) {
    REQUIRE(queue.start(now) == Ids{"1"});
    queue.ended("1", Outcome::failed, now, 0.5);
    now = queue.next(now);
  }
  REQUIRE(queue.start(now) == Ids{"1"});
  queue.ended("1", Outcome::healed, now, 0.5);
  const bool long_healthy = GENERATE(true, false);
  now += long_healthy ? seconds(121) : seconds(1);
  queue.add(entry("1"), now);
  CHECK(queue.start(now).empty() != long_healthy);
}

TEST_CASE("a volume that fails again right after each heal is tried ever less often") {
  HealQueue queue({});
  auto now = t0;
  std::vector<duration> waits;
  for (int round = 0; round < 12; ++round) {
    queue.add(entry("1"), now);
    const auto due = std::max(now, queue.next(now) == time_point::max() ? now : queue.next(now));
    waits.push_back(due - now);
    now = due;
    REQUIRE(queue.start(now) == Ids{"1"});
    queue.ended("1", Outcome::healed, now, 0.5);
  }
  CHECK(waits.front() == duration::zero());
  CHECK(std::ranges::is_sorted(waits));
  CHECK(waits.back() >= seconds(20));
  // One that nothing was done to was not healed in vain.
  queue.add(entry("2"), now);
  REQUIRE(queue.start(now) == Ids{"2"});
  queue.ended("2", Outcome::well, now, 0.5);
  queue.add(entry("2"), now);
  CHECK(queue.start(now) == Ids{"2"});
}

namespace {

/// A queue whose volumes have failed with these answers, and wait for backoffs of a minute at most.
HealQueue failed_queue(const std::vector<std::pair<HealEntry, errc>>& volumes, std::size_t at_once = 16) {
  HealQueue queue({.at_once = at_once});
  auto now = t0;
  for (const auto& [volume, answer] : volumes) queue.add(volume, now);
  for (int failure = 0; failure < 7; ++failure) {
    for (std::size_t failed = 0; failed < volumes.size();)
      for (const auto& id : queue.start(now)) {
        const auto one = std::ranges::find(volumes, id, [](const auto& of) { return of.first.volume_id; });
        queue.ended(id, Outcome::failed, now, one == volumes.begin() ? 0.1 : 0.9, one->second);
        ++failed;
      }
    if (failure < 6) now += std::chrono::minutes(1);
  }
  return queue;
}
const time_point kFailed = t0 + std::chrono::minutes(6);
const time_point kFirstIsDue = kFailed + seconds(6);

}  // namespace

TEST_CASE("once a volume is healed, the others of its cluster that failed with the same answer are tried at once") {
  auto queue = failed_queue({{entry("first"), errc::node_fenced},
                             {entry("same"), errc::node_fenced},
                             {entry("other answer"), errc::unproven},
                             {entry("other cluster", "b"), errc::node_fenced}});
  REQUIRE(queue.start(kFirstIsDue) == Ids{"first"});
  CHECK(queue.start(kFirstIsDue).empty());
  queue.ended("first", Outcome::healed, kFirstIsDue, 0.5);
  CHECK(queue.start(kFirstIsDue) == Ids{"same"});
}

TEST_CASE("a volume that was well, or had not failed before, hurries no other") {
  const Outcome outcome = GENERATE(Outcome::well, Outcome::healed);
  auto queue = failed_queue({{entry("first"), errc::node_fenced}, {entry("same"), errc::node_fenced}});
  if (outcome == Outcome::healed) queue.add(entry("new"), kFirstIsDue);
  const auto ids = queue.start(kFirstIsDue);
  REQUIRE(ids.size() == (outcome == Outcome::healed ? 2 : 1));
  queue.ended(ids.back(), outcome, kFirstIsDue, 0.5);
  CHECK(queue.start(kFirstIsDue).empty());
}

TEST_CASE("volumes that are tried because another was healed are no more at once than any others") {
  std::vector<std::pair<HealEntry, errc>> volumes{{entry("0"), errc::node_fenced}};
  for (int i = 10; i < 60; ++i) volumes.emplace_back(entry(std::to_string(i)), errc::node_fenced);
  auto queue = failed_queue(volumes, 4);
  REQUIRE(queue.start(kFirstIsDue) == Ids{"0"});
  queue.ended("0", Outcome::healed, kFirstIsDue, 0.5);
  CHECK(queue.start(kFirstIsDue).size() == 4);
  CHECK(queue.start(kFirstIsDue).empty());
}

TEST_CASE("a volume that fails again although another was healed waits for its own backoff") {
  auto queue = failed_queue({{entry("0 first"), errc::node_fenced},
                             {entry("1 bad"), errc::node_fenced},
                             {entry("2 good"), errc::node_fenced}});
  REQUIRE(queue.start(kFirstIsDue) == Ids{"0 first"});
  queue.ended("0 first", Outcome::healed, kFirstIsDue, 0.5);
  REQUIRE(queue.start(kFirstIsDue) == Ids{"1 bad", "2 good"});
  queue.ended("1 bad", Outcome::failed, kFirstIsDue, 0.5, errc::node_fenced);
  queue.ended("2 good", Outcome::healed, kFirstIsDue, 0.5);
  CHECK(queue.start(kFirstIsDue).empty());
  CHECK(queue.next(kFirstIsDue) == kFailed + seconds(54));
  CHECK(queue.start(kFailed + seconds(54)) == Ids{"1 bad"});
}

TEST_CASE("a volume that an operator asks for is tried at once") {
  HealQueue queue({});
  queue.add(entry("1"), t0);
  REQUIRE(queue.start(t0) == Ids{"1"});
  queue.ended("1", Outcome::failed, t0, 0.9);
  REQUIRE(queue.start(t0).empty());
  queue.retry_now("1", t0);
  CHECK(queue.start(t0) == Ids{"1"});
}

TEST_CASE("300 volumes of a dead cluster cost it one question at a time, and none is forgotten") {
  HealQueue queue({});
  for (int i = 0; i < 300; ++i) queue.add(entry(std::to_string(i)), t0);
  auto now = t0;
  int asked = 0;
  for (const auto end = t0 + std::chrono::minutes(10); now < end;) {
    const auto ids = queue.start(now);
    asked += static_cast<int>(ids.size());
    for (const auto& id : ids) queue.ended(id, Outcome::unreachable, now, 0.5);
    const auto next = queue.next(now);
    REQUIRE(next != time_point::max());
    now = next;
  }
  CHECK(asked < 16 + 40);
  int healed = 0;
  for (auto ids = queue.start(now); !ids.empty(); ids = queue.start(now))
    for (const auto& id : ids) {
      queue.ended(id, Outcome::healed, now, 0.5);
      ++healed;
    }
  CHECK(healed == 300);
}
