// One object kept as the server has it, whatever the server does. Time is virtual: pauses pass when a test says so.
#include "corbd/kube/kept.hpp"

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
std::string change(const std::string& type, const std::string& object) { return R"({"type":")" + type + R"(","object":)" + object + "}\n"; }
bool is_watch(const Request& request) { return request.target.find("watch=1") != request.target.npos; }

class Scene {
 public:
  explicit Scene(ApiServer::Script script) : server(std::move(script)) {
    kept.start();
    loop.io.restart();
    loop.io.poll();
  }
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.kept.stop({});
    co_return true;
  }
  /// What the object's value becomes; pauses are skipped.
  bool becomes(const std::string& value) {
    return test::eventually(loop.io, [&] {
      if (loop.clock.next() < loop.clock.now() + 90s) loop.clock.advance(1s);
      return this->value() == value;
    });
  }
  std::string value() const {
    if (!kept.known()) return "unknown";
    return kept.object() ? std::string(kept.object()->at("value").as_string()) : "absent";
  }

  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server;
  kube::Api api{loop.control(), loop.clock, pool, server.access()};
  int changes = 0;
  kube::Kept kept{loop.control(), loop.clock, api, {"/api/v1/things", "things"}, "one", [this] { ++changes; }};
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

TEST_CASE("an object that is deleted is absent, and one that comes is there") {
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

TEST_CASE("a server that is down at first, and one that forgets the version, are got over") {
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

TEST_CASE("where only get is granted the object is read by its name") {
  Scene scene([](const Request& request, Peer& peer) {
    if (request.target == "/api/v1/things/one") return peer.answer(200, thing("a", "1"));
    peer.answer(403, R"({"reason":"Forbidden"})");
  });
  CHECK(scene.becomes("a"));
}

TEST_CASE("while the server refuses, the reason is known and the object is not") {
  Scene scene([](const Request&, Peer& peer) { peer.answer(401, ""); });
  CHECK(test::eventually(scene.loop.io, [&] { return scene.kept.failure().has_value(); }));
  CHECK(scene.value() == "unknown");
  CHECK(scene.kept.failure()->error.code == errc::unauthenticated);
}
