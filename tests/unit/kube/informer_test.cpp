// An informer keeps its objects as the server has them, whatever the server does. Time is virtual.
#include "corbd/kube/informer.hpp"

#include <algorithm>

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;
using Peer = ApiServer::Peer;
using Request = ApiServer::Request;

namespace {

std::string thing(const std::string& value, const std::string& version) {
  return R"({"metadata":{"name":"one","resourceVersion":")" + version + R"("},"value":")" + value + "\"}";
}
std::string list(const std::string& items, const std::string& version) {
  return R"({"metadata":{"resourceVersion":")" + version + R"("},"items":[)" + items + "]}";
}
std::string change(const std::string& type, const std::string& object) {
  return R"({"type":")" + type + R"(","object":)" + object + "}\n";
}
bool asks_initial(const Request& request) {
  return request.target.find("sendInitialEvents=true") != request.target.npos;
}
const std::string kTold =
    R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}})"
    "\n";
bool is_watch(const Request& request) { return request.target.find("watch=1") != request.target.npos; }

class Scene {
 public:
  /// Unless `newer`, the server supports no watch that sends the initial objects.
  explicit Scene(ApiServer::Script script, bool newer = false, kube::Which which = {"one"})
      : which(std::move(which)),
        server(newer ? std::move(script) : [script = std::move(script)](const Request& request, Peer& peer) {
          if (asks_initial(request))
            return peer.answer(
                422, R"({"kind":"Status","reason":"Invalid","message":"sendInitialEvents is forbidden for watch"})");
          script(request, peer);
        }) {
    kept.start();
    loop.io.restart();
    loop.io.poll();
  }
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.kept.stop({});
    co_return true;
  }
  /// Whether the object gets that value. Pauses are skipped.
  bool becomes(const std::string& value) {
    return test::eventually(loop.io, [&] {
      if (loop.clock.next() < loop.clock.now() + 90s) loop.clock.advance(1s);
      return this->value() == value;
    });
  }
  /// Lets time pass, from one timer to the next. The server has a moment for each answer.
  void pass(duration time) {
    for (const auto end = loop.clock.now() + time; loop.clock.now() < end;) {
      loop.io.restart();
      if (loop.io.run_one_for(5ms) > 0) continue;
      loop.clock.advance(std::min(loop.clock.next(), end) - loop.clock.now());
    }
  }
  std::string value() const {
    if (!kept.known()) return "unknown";
    return kept.object() ? std::string(kept.object()->at("value").as_string()) : "absent";
  }

  kube::Which which;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server;
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  int changes = 0;
  kube::Informer kept{
      loop.control(), loop.clock, api, {"/api/v1/things", "things"}, which, [this](const std::string&) { ++changes; }};
};

}  // namespace

TEST_CASE("an object is known once listed, and follows the watch; a bookmark changes nothing") {
  Scene scene([](const Request& request, Peer& peer) {
    if (!is_watch(request)) return peer.answer(200, list(thing("a", "1"), "7"));
    peer.begin();
    peer.piece(change("BOOKMARK", R"({"metadata":{"resourceVersion":"8"},"value":"zero"})"));
    peer.piece(change("MODIFIED", thing("b", "9")));
    peer.hang();
  });
  CHECK(scene.becomes("b"));
  CHECK(scene.changes == 2);
  CHECK_FALSE(scene.kept.failure());
}

TEST_CASE("a deleted object becomes absent, and an added one becomes present") {
  Scene gone([](const Request& request, Peer& peer) {
    if (!is_watch(request)) return peer.answer(200, list(thing("a", "1"), "7"));
    peer.begin();
    peer.piece(change("DELETED", thing("a", "9")));
    peer.hang();
  });
  CHECK(gone.becomes("absent"));
  Scene come([](const Request& request, Peer& peer) {
    if (!is_watch(request)) return peer.answer(200, list("", "7"));
    peer.begin();
    peer.piece(change("ADDED", thing("a", "9")));
    peer.hang();
  });
  CHECK(come.becomes("a"));
}

TEST_CASE("an informer recovers from a server that is down at first, and from an expired version") {
  std::atomic<int> asked{0};
  Scene scene([&](const Request& request, Peer& peer) {
    const int number = ++asked;
    if (number <= 2) return peer.answer(503, "down");
    if (number == 3) return peer.answer(200, list(thing("a", "1"), "7"));
    if (number == 4 && is_watch(request)) {
      peer.begin();
      peer.piece(change("ERROR", R"({"kind":"Status","code":410,"reason":"Expired"})"));
      return peer.end();
    }
    if (!is_watch(request)) return peer.answer(200, list(thing("b", "50"), "50"));
    peer.hang();
  });
  CHECK(scene.becomes("b"));
}

TEST_CASE("an informer with only the right to get reads its object by name") {
  Scene scene([](const Request& request, Peer& peer) {
    if (request.target == "/api/v1/things/one") return peer.answer(200, thing("a", "1"));
    peer.answer(403, R"({"kind":"Status","reason":"Forbidden"})");
  });
  CHECK(scene.becomes("a"));
}

TEST_CASE("while the server refuses, the reason is known and the object is not") {
  Scene scene([](const Request&, Peer& peer) { peer.answer(401, ""); });
  CHECK(test::eventually(scene.loop.io, [&] { return scene.kept.failure().has_value(); }));
  CHECK(scene.value() == "unknown");
  CHECK(scene.kept.failure()->error.code == errc::unauthenticated);
}

TEST_CASE("a server that is down for hours is asked about once a minute, and once it is back the object is known") {
  std::atomic<bool> down{true};
  Scene scene(
      [&](const Request& request, Peer& peer) {
        if (down) peer.close();
        if (!is_watch(request)) return peer.answer(200, list(thing("a", "1"), "7"));
        peer.begin();
        if (asks_initial(request)) peer.piece(change("ADDED", thing("a", "1")) + kTold);
        peer.hang();
      },
      true);
  scene.pass(3h);
  CHECK(scene.value() == "unknown");
  CHECK(scene.server.requests().size() > 100);
  CHECK(scene.server.requests().size() < 500);
  down = false;
  CHECK(scene.becomes("a"));
}

TEST_CASE("a known object stays known while the server is down, and what changed meanwhile is seen afterwards") {
  std::atomic<int> lists{0};
  std::atomic<bool> down{false};
  Scene scene([&](const Request& request, Peer& peer) {
    if (down) peer.close();
    if (!is_watch(request)) return peer.answer(200, list(thing(++lists == 1 ? "a" : "b", "7"), "7"));
    if (lists == 1) {
      down = true;
      peer.close();
    }
    peer.begin();
    peer.piece(change("MODIFIED", thing("c", "9")));
    peer.hang();
  });
  CHECK(scene.becomes("a"));
  scene.pass(1h);
  CHECK(scene.value() == "a");
  down = false;
  lists = 2;
  CHECK(scene.becomes("c"));
}

TEST_CASE("a watch whose server vanished silently ends some time after its limit and starts again") {
  std::atomic<int> watches{0};
  Scene scene([&](const Request& request, Peer& peer) {
    if (!is_watch(request)) return peer.answer(200, list(thing("a", "1"), "7"));
    if (++watches == 1) peer.hang();
    peer.begin();
    peer.piece(change("MODIFIED", thing("b", "9")));
    peer.hang();
  });
  CHECK(scene.becomes("a"));
  scene.pass(15min);
  CHECK(scene.becomes("b"));
}

TEST_CASE("a wall clock that jumps by years causes no request") {
  Scene scene([](const Request& request, Peer& peer) {
    if (!is_watch(request)) return peer.answer(200, list(thing("a", "1"), "7"));
    peer.hang();
  });
  REQUIRE(scene.becomes("a"));
  REQUIRE(test::eventually(scene.loop.io, [&] { return is_watch(scene.server.requests().back()); }));
  const auto before = scene.server.requests().size();
  for (const auto years : {10, -20}) {
    scene.loop.clock.wall_offset = std::chrono::hours(24 * 365) * years;
    scene.pass(10s);
  }
  CHECK(scene.server.requests().size() == before);
}

TEST_CASE("an object of another name is ignored, whatever the server selects") {
  const std::string other = R"({"metadata":{"name":"other","resourceVersion":"1"},"value":"x"})";
  Scene scene([&](const Request& request, Peer& peer) {
    if (!is_watch(request)) return peer.answer(200, list(other + "," + thing("a", "1"), "7"));
    peer.begin();
    peer.piece(change("MODIFIED", other));
    peer.piece(change("DELETED", other));
    peer.piece(change("MODIFIED", thing("b", "9")));
    peer.hang();
  });
  CHECK(scene.becomes("b"));
  CHECK(scene.changes == 2);
}

TEST_CASE("a server whose watch sends the initial objects needs one request, even for an absent object") {
  for (const std::string& there : {std::string("a"), std::string("absent")}) {
    Scene scene(
        [&](const Request&, Peer& peer) {
          peer.begin();
          if (there == "a") peer.piece(change("ADDED", thing("a", "90")));
          peer.piece(kTold);
          peer.hang();
        },
        true);
    CHECK(test::eventually(scene.loop.io, [&] { return scene.value() == there; }));
    scene.pass(60s);
    CHECK(scene.value() == there);
    CHECK(scene.server.requests().size() == 1);
  }
}

TEST_CASE("an informer falls back to lists for good if a watch never marks the end of the initial objects") {
  Scene scene(
      [&](const Request& request, Peer& peer) {
        if (!is_watch(request)) return peer.answer(200, list("", "7"));
        peer.begin();
        peer.hang();
      },
      true);
  CHECK(scene.becomes("absent"));
  REQUIRE(test::eventually(scene.loop.io, [&] { return scene.server.requests().size() >= 3; }));
  CHECK_FALSE(asks_initial(scene.server.requests().back()));
}

// --- the objects of a collection that are ours

namespace {

std::string owned(const std::string& name, const std::string& owner) {
  return R"({"metadata":{"name":")" + name + R"("},"owner":")" + owner + "\"}";
}
kube::Which ours() {
  return {"", "owner=me", [](const boost::json::object& object) { return object.at("owner").as_string() == "me"; }};
}
bool selects(const Request& request) { return request.target.find("owner%3Dme") != request.target.npos; }
std::vector<std::string> names(const Scene& scene) {
  std::vector<std::string> all;
  for (const auto& [name, object] : scene.kept.objects()) all.push_back(name);
  return all;
}
bool become(Scene& scene, const std::vector<std::string>& expected) {
  return test::eventually(scene.loop.io, [&] {
    if (scene.loop.clock.next() < scene.loop.clock.now() + 90s) scene.loop.clock.advance(1s);
    return names(scene) == expected;
  });
}

}  // namespace

TEST_CASE("an informer keeps only the objects of a collection that are ours, through lists and watches") {
  Scene scene(
      [](const Request& request, Peer& peer) {
        if (!is_watch(request))
          return peer.answer(200, list(owned("a", "me") + "," + owned("b", "you") + "," + owned("c", "me"), "7"));
        peer.begin();
        peer.piece(change("ADDED", owned("d", "me")) + change("ADDED", owned("e", "you")) +
                   change("MODIFIED", owned("a", "you")) + change("DELETED", owned("c", "me")));
        peer.hang();
      },
      false, ours());
  CHECK(become(scene, {"d"}));
}

TEST_CASE("a watch's initial objects replace the kept ones once they are complete") {
  Scene scene(
      [](const Request&, Peer& peer) {
        peer.begin();
        peer.piece(change("ADDED", owned("a", "me")) + change("ADDED", owned("b", "you")) + kTold);
        peer.hang();
      },
      true, ours());
  CHECK(become(scene, {"a"}));
}

TEST_CASE("an informer stops selecting by field for good once the server refuses the selector") {
  Scene scene(
      [](const Request& request, Peer& peer) {
        if (selects(request))
          return peer.answer(400,
                             R"({"kind":"Status","reason":"BadRequest","message":"field label not supported: owner"})");
        if (!is_watch(request)) return peer.answer(200, list(owned("a", "me") + "," + owned("b", "you"), "7"));
        peer.begin();
        peer.hang();
      },
      false, ours());
  CHECK(become(scene, {"a"}));
  const auto requests = scene.server.requests();
  CHECK(std::ranges::count_if(requests,
                              [](const auto& request) { return selects(request) && !asks_initial(request); }) == 1);
}

TEST_CASE("a collection that may not be listed is requested again, and never object by object") {
  Scene scene(
      [](const Request&, Peer& peer) { peer.answer(403, R"({"kind":"Status","reason":"Forbidden","message":"no"})"); },
      false, ours());
  scene.pass(3min);
  const auto requests = scene.server.requests();
  CHECK(requests.size() > 2);
  CHECK(
      std::ranges::all_of(requests, [](const auto& request) { return request.target.starts_with("/api/v1/things?"); }));
  CHECK_FALSE(scene.kept.known());
}
