// The rate of Events, and what happens to those that the server refuses.
#include "corbd/kube/recorder.hpp"

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;

namespace {

struct Scene {
  std::atomic<unsigned> status = 201;
  const char* headers = "";
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (status == 404) return peer.absent(request);
    peer.answer(status, status == 201 ? R"({"metadata":{"name":"made"}})" : R"({"kind":"Status"})", headers);
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  kube::Recorder recorder{loop.control(), loop.clock, api, {"corbd", "node-1"}};
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.recorder.stop({});
    co_return true;
  }
  void tell(int object, const std::string& message = "m") {
    recorder.tell({"Node", "", "n" + std::to_string(object), ""}, {"Reason", true, message});
  }
  bool sends(std::size_t count) {
    return test::eventually(loop.io, [&] { return server.requests().size() >= count; });
  }
};

}  // namespace

TEST_CASE("events beyond a burst wait for their turn") {
  Scene scene;
  for (int i = 0; i < 30; ++i) scene.tell(i);
  REQUIRE(scene.sends(25));
  for (int i = 0; i < 50; ++i) scene.loop.io.poll();
  CHECK(scene.server.requests().size() == 25);
  REQUIRE(test::eventually(scene.loop.io, [&] {
    scene.loop.clock.advance(200ms);
    return scene.server.requests().size() == 30;
  }));
}

TEST_CASE("an event that the server refuses is dropped, and the next one is sent") {
  Scene scene;
  scene.status = 403;
  scene.tell(1);
  REQUIRE(scene.sends(1));
  scene.status = 201;
  scene.tell(2);
  REQUIRE(scene.sends(2));
  CHECK_THAT(scene.server.requests()[1].body, ContainsSubstring("n2"));
}

TEST_CASE("an event that a busy server does not take is sent again when the server says, and then the next one") {
  Scene scene;
  scene.headers = "Retry-After: 40\r\n";
  scene.status = 429;
  scene.tell(1);
  scene.tell(2);
  REQUIRE(scene.sends(1));
  for (int i = 0; i < 50; ++i) scene.loop.io.poll();
  scene.loop.clock.advance(39s);
  for (int i = 0; i < 50; ++i) scene.loop.io.poll();
  CHECK(scene.server.requests().size() == 1);
  scene.status = 201;
  REQUIRE(test::eventually(scene.loop.io, [&] {
    scene.loop.clock.advance(1s);
    return scene.server.requests().size() == 3;
  }));
  CHECK_THAT(scene.server.requests()[1].body, ContainsSubstring("n1"));
  CHECK_THAT(scene.server.requests()[2].body, ContainsSubstring("n2"));
}

TEST_CASE("an event that has expired is created again instead of counted") {
  Scene scene;
  scene.tell(1);
  REQUIRE(scene.sends(1));
  REQUIRE(test::eventually(scene.loop.io, [&] { return true; }));
  scene.status = 404;
  scene.tell(1);
  REQUIRE(scene.sends(3));
  CHECK(scene.server.requests()[1].method == "PATCH");
  CHECK(scene.server.requests()[2].method == "POST");
}

TEST_CASE("an event for a namespace that is gone holds up no other event") {
  Scene scene;
  scene.status = 404;
  scene.tell(1);
  scene.tell(2);
  REQUIRE(scene.sends(2));
  CHECK_THAT(scene.server.requests()[1].body, ContainsSubstring("n2"));
}

TEST_CASE("a message is cut where the server would refuse it") {
  Scene scene;
  scene.tell(1, std::string(5000, 'x'));
  REQUIRE(scene.sends(1));
  CHECK(scene.server.requests()[0].body.find(std::string(1024, 'x')) != std::string::npos);
  CHECK(scene.server.requests()[0].body.find(std::string(1025, 'x')) == std::string::npos);
}
