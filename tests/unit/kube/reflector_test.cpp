#include "reflector.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using kube::ApiError;
using kube::Reflector;

namespace {

const time_point kNow{1000s};

ApiError failed(ApiError::Kind kind, std::optional<std::chrono::seconds> retry_after = std::nullopt) {
  ApiError failure;
  failure.kind = kind;
  failure.retry_after = retry_after;
  return failure;
}

bool lists(Reflector& reflector, const std::string& version) {
  return reflector.next(0) == Reflector::Action(Reflector::List{version});
}
bool watches(Reflector& reflector, const std::string& version, bool initial = false) {
  return reflector.next(0) == Reflector::Action(Reflector::Watch{version, 300s, initial});
}
std::chrono::milliseconds sleeps(Reflector& reflector, double random = 0) {
  const auto action = reflector.next(random);
  const auto* sleep = std::get_if<Reflector::Sleep>(&action);
  return sleep == nullptr ? -1ms : sleep->time;
}

/// A reflector whose server supports no watch that sends the initial objects.
Reflector older() {
  Reflector reflector;
  reflector.watching(kNow);
  reflector.watch_ended(std::nullopt, kNow);
  return reflector;
}

/// A reflector that has listed version 7 and watches.
Reflector watching() {
  auto reflector = older();
  reflector.listed("7");
  reflector.watching(kNow);
  return reflector;
}

}  // namespace

TEST_CASE("a reflector begins with a watch that sends the initial objects, and then watches as usual") {
  Reflector reflector;
  CHECK(watches(reflector, "0", true));
  reflector.watching(kNow);
  reflector.seen("90");  // the initial objects come in no order
  reflector.initial_told("7");
  CHECK(reflector.version() == "7");
  reflector.seen("8");
  reflector.watch_ended(std::nullopt, kNow + 300s);
  CHECK(watches(reflector, "8"));
}

TEST_CASE("a server without such watches is listed from its cache, then and later") {
  auto failure = failed(ApiError::Kind::other);
  failure.error.code = errc::invalid_argument;
  for (const auto& ended : {std::optional(failure), std::optional<ApiError>()}) {
    Reflector reflector;
    reflector.watching(kNow);
    reflector.seen("90");
    reflector.watch_ended(ended, kNow);
    CHECK(lists(reflector, "0"));
    reflector.listed("7");
    CHECK(watches(reflector, "7"));
    reflector.watching(kNow);
    reflector.watch_ended(failed(ApiError::Kind::expired), kNow);
    CHECK(lists(reflector, "7"));
  }
}

TEST_CASE(
    "a watch that breaks before its initial objects are complete is repeated, after a pause or from the latest "
    "version") {
  Reflector broken;
  broken.watching(kNow);
  broken.watch_ended(failed(ApiError::Kind::throttled, 5s), kNow);
  CHECK(sleeps(broken) == 5s);
  CHECK(watches(broken, "0", true));
  Reflector early;
  early.watching(kNow);
  early.watch_ended(failed(ApiError::Kind::too_new), kNow);
  CHECK(watches(early, "", true));
}

TEST_CASE("an expired version leads to a new watch with the initial objects, where the server supports that") {
  Reflector reflector;
  reflector.watching(kNow);
  reflector.initial_told("7");
  reflector.watch_ended(failed(ApiError::Kind::expired), kNow);
  CHECK(watches(reflector, "7", true));
}

TEST_CASE("a watch is asked to last between five and ten minutes") {
  Reflector reflector;
  reflector.listed("7");
  CHECK(reflector.next(0.5) == Reflector::Action(Reflector::Watch{"7", 450s}));
}

TEST_CASE("a watch that ends normally continues at once after the last version seen, a bookmark's included") {
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

TEST_CASE("an expired version leads to a list, first from the last known version and then from the most recent") {
  auto reflector = watching();
  reflector.watch_ended(failed(ApiError::Kind::expired), kNow);
  CHECK(lists(reflector, "7"));
  reflector.list_failed(failed(ApiError::Kind::expired), kNow);
  CHECK(lists(reflector, ""));
  reflector.list_failed(failed(ApiError::Kind::expired), kNow);
  CHECK(sleeps(reflector) == 800ms);
  CHECK(lists(reflector, ""));
  reflector.listed("20");
  CHECK(watches(reflector, "20"));
}

TEST_CASE("a broken or throttled watch is watched again after a pause, never listed") {
  for (const auto kind : {ApiError::Kind::other, ApiError::Kind::throttled}) {
    auto reflector = watching();
    reflector.watch_ended(failed(kind), kNow);
    CHECK(sleeps(reflector) == 800ms);
    CHECK(watches(reflector, "7"));
  }
}

TEST_CASE("a watch that the server calls invalid leads to a list of the most recent version after a pause") {
  auto reflector = watching();
  auto failure = failed(ApiError::Kind::other);
  failure.error.code = errc::invalid_argument;
  reflector.watch_ended(failure, kNow);
  CHECK(sleeps(reflector) == 800ms);
  CHECK(lists(reflector, ""));
}

TEST_CASE("the pause doubles up to thirty seconds, plus as much again at random, and resets after two calm minutes") {
  auto reflector = watching();
  std::vector<std::chrono::milliseconds> pauses;
  for (int i = 0; i < 8; ++i) {
    reflector.watch_ended(failed(ApiError::Kind::other), kNow);
    pauses.push_back(sleeps(reflector));
  }
  CHECK(pauses ==
        std::vector<std::chrono::milliseconds>{800ms, 1600ms, 3200ms, 6400ms, 12800ms, 25600ms, 30000ms, 30000ms});
  reflector.watch_ended(failed(ApiError::Kind::other), kNow);
  CHECK(sleeps(reflector, 0.5) == 45000ms);
  reflector.watch_ended(failed(ApiError::Kind::other), kNow + 3min);
  CHECK(sleeps(reflector) == 800ms);
}

TEST_CASE("the client respects the server's Retry-After") {
  auto reflector = watching();
  reflector.watch_ended(failed(ApiError::Kind::throttled, 17s), kNow);
  CHECK(sleeps(reflector) == 17s);
  reflector.watch_ended(failed(ApiError::Kind::other), kNow);
  CHECK(sleeps(reflector) == 1600ms);
}

TEST_CASE("a server that refuses to watch from the version that it listed is asked with growing pauses") {
  for (const bool initial : {false, true}) {
    auto reflector = initial ? Reflector() : older();
    const auto list = [&] {
      static_cast<void>(reflector.next(0));
      reflector.watching(kNow);
      initial ? reflector.initial_told("7") : reflector.listed("7");
      if (initial) return;
      static_cast<void>(reflector.next(0));
      reflector.watching(kNow);
    };
    list();
    reflector.watch_ended(failed(ApiError::Kind::expired), kNow);
    list();  // the first time at once
    reflector.watch_ended(failed(ApiError::Kind::expired), kNow + 1s);
    CHECK(sleeps(reflector) == 800ms);
    list();
    reflector.watch_ended(failed(ApiError::Kind::expired), kNow + 2s);
    CHECK(sleeps(reflector) == 1600ms);
    list();
    reflector.watch_ended(failed(ApiError::Kind::expired), kNow + 1000s);
    CHECK(sleeps(reflector) == -1ms);
  }
}
