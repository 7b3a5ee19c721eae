#include "corbd/kube/reflector.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using kube::Failure;
using kube::Reflector;

namespace {

const time_point kNow{1000s};

Failure failed(Failure::Kind kind, std::optional<std::chrono::seconds> retry_after = std::nullopt) {
  Failure failure;
  failure.kind = kind;
  failure.retry_after = retry_after;
  return failure;
}

bool lists(Reflector& reflector, const std::string& version) { return reflector.next(0) == Reflector::Action(Reflector::List{version}); }
bool watches(Reflector& reflector, const std::string& version) {
  return reflector.next(0) == Reflector::Action(Reflector::Watch{version, 300s});
}
std::chrono::milliseconds sleeps(Reflector& reflector, double random = 0) {
  const auto action = reflector.next(random);
  const auto* sleep = std::get_if<Reflector::Sleep>(&action);
  return sleep == nullptr ? -1ms : sleep->time;
}

/// Listed at version 7, watching.
Reflector watching() {
  Reflector reflector;
  reflector.listed("7");
  reflector.watching(kNow);
  return reflector;
}

}  // namespace

TEST_CASE("it begins with a list from the cache, and watches from there") {
  Reflector reflector;
  CHECK(lists(reflector, "0"));
  reflector.listed("7");
  CHECK(watches(reflector, "7"));
}

TEST_CASE("a watch is asked to last between five and ten minutes") {
  Reflector reflector;
  reflector.listed("7");
  CHECK(reflector.next(0.5) == Reflector::Action(Reflector::Watch{"7", 450s}));
}

TEST_CASE("a watch that ends as it should goes on at once behind the last version seen, a bookmark's too") {
  auto reflector = watching();
  reflector.seen("9");
  reflector.seen("");
  reflector.watch_ended(std::nullopt, kNow + 300s);
  CHECK(watches(reflector, "9"));
  reflector.watching(kNow + 300s);
  reflector.watch_ended(std::nullopt, kNow + 600s);  // without any event, but after its time
  CHECK(watches(reflector, "9"));
}

TEST_CASE("a watch that ends at once without an event is not asked for again at once") {
  auto reflector = watching();
  reflector.watch_ended(std::nullopt, kNow + 500ms);
  CHECK(sleeps(reflector) == 800ms);
  CHECK(watches(reflector, "7"));
}

TEST_CASE("an expired version makes a list, from the last version first and then from the most recent") {
  auto reflector = watching();
  reflector.watch_ended(failed(Failure::Kind::expired), kNow);
  CHECK(lists(reflector, "7"));
  reflector.list_failed(failed(Failure::Kind::expired), kNow);
  CHECK(lists(reflector, ""));
  reflector.list_failed(failed(Failure::Kind::expired), kNow);
  CHECK(sleeps(reflector) == 800ms);
  CHECK(lists(reflector, ""));
  reflector.listed("20");
  CHECK(watches(reflector, "20"));
}

TEST_CASE("a broken or throttled watch is watched again after a pause, never listed") {
  for (const auto kind : {Failure::Kind::other, Failure::Kind::throttled}) {
    auto reflector = watching();
    reflector.watch_ended(failed(kind), kNow);
    CHECK(sleeps(reflector) == 800ms);
    CHECK(watches(reflector, "7"));
  }
}

TEST_CASE("the pause doubles to thirty seconds, with as much again by chance, and begins anew after two minutes of calm") {
  auto reflector = watching();
  std::vector<std::chrono::milliseconds> pauses;
  for (int i = 0; i < 8; ++i) {
    reflector.watch_ended(failed(Failure::Kind::other), kNow);
    pauses.push_back(sleeps(reflector));
  }
  CHECK(pauses == std::vector<std::chrono::milliseconds>{800ms, 1600ms, 3200ms, 6400ms, 12800ms, 25600ms, 30000ms, 30000ms});
  reflector.watch_ended(failed(Failure::Kind::other), kNow);
  CHECK(sleeps(reflector, 0.5) == 45000ms);
  reflector.watch_ended(failed(Failure::Kind::other), kNow + 3min);
  CHECK(sleeps(reflector) == 800ms);
}

TEST_CASE("the server's own time to wait is kept") {
  auto reflector = watching();
  reflector.watch_ended(failed(Failure::Kind::throttled, 17s), kNow);
  CHECK(sleeps(reflector) == 17s);
  reflector.watch_ended(failed(Failure::Kind::other), kNow);
  CHECK(sleeps(reflector) == 1600ms);
}
