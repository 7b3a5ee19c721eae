// Following the changes over the socket.
#include "scene.hpp"

using namespace corbd;
using test::Scene;
using volume::Health;
using Stub = v1::Admin::Stub;
using namespace std::chrono_literals;

namespace {

v1::NextEventsRequest after(const v1::NextEventsResponse& page, std::chrono::milliseconds wait = {}) {
  v1::NextEventsRequest request;
  request.set_run(page.run());
  request.set_after(page.last());
  request.set_wait_ms(static_cast<std::uint32_t>(wait.count()));
  return request;
}

v1::NextEventsResponse ask(const Scene& scene, const v1::NextEventsRequest& request,
                           std::chrono::milliseconds limit = 20s) {
  v1::NextEventsResponse page;
  REQUIRE(scene.call(&Stub::NextEvents, request, page, limit).ok());
  return page;
}

}  // namespace

TEST_CASE("the first page has what happened before anybody asked, the next only what came since") {
  Scene scene;
  scene.start();
  scene.note("1", Health::reconnecting, "its link died");
  const auto first = ask(scene, v1::NextEventsRequest());
  REQUIRE(first.events_size() == 1);
  CHECK(first.events(0).volume_id() == "1");
  CHECK(first.events(0).from() == v1::HEALTH_STAGED);
  CHECK(first.events(0).to() == v1::HEALTH_RECONNECTING);
  CHECK(first.events(0).why() == "its link died");
  scene.note("2", Health::lost);
  const auto second = ask(scene, after(first));
  REQUIRE(second.events_size() == 1);
  CHECK(second.events(0).volume_id() == "2");
}

TEST_CASE("a waiting follower gets a change as it happens") {
  Scene scene;
  scene.start();
  const auto first = ask(scene, v1::NextEventsRequest());
  auto waiting = std::async(std::launch::async, [&] { return ask(scene, after(first, 60s), 60s); });
  scene.note("1", Health::failed);
  const auto page = waiting.get();
  REQUIRE(page.events_size() == 1);
  CHECK(page.events(0).to() == v1::HEALTH_FAILED);
}

TEST_CASE("a wait that ends first gives an empty page to go on from") {
  Scene scene;
  scene.start();
  scene.note("1", Health::lost);
  const auto first = ask(scene, v1::NextEventsRequest());
  const auto empty = ask(scene, after(first, 10ms));
  CHECK(empty.events().empty());
  CHECK(empty.last() == first.last());
  CHECK(empty.run() == first.run());
}

TEST_CASE("a slow follower is told how many it missed") {
  Scene scene;
  scene.start();
  scene.note("0", Health::lost);
  const auto first = ask(scene, v1::NextEventsRequest());
  scene.thread.call([&] {
    for (int i = 1; i <= 1500; ++i) scene.server->changed({{}, std::to_string(i), Health::staged, Health::lost, ""});
  });
  auto page = ask(scene, after(first));
  CHECK(page.missed() == 1500 - 1024);
  CHECK(page.events(0).volume_id() == std::to_string(1500 - 1024 + 1));
  int seen = page.events_size();
  for (page = ask(scene, after(page)); !page.events().empty(); page = ask(scene, after(page))) {
    CHECK(page.missed() == 0);
    seen += page.events_size();
  }
  CHECK(seen == 1024);
}

TEST_CASE("a follower of an earlier run of the agent starts over") {
  Scene scene;
  scene.start();
  scene.note("1", Health::lost);
  v1::NextEventsRequest request;
  request.set_run(1);
  request.set_after(4711);
  const auto page = ask(scene, request);
  CHECK(page.run() != 1);
  CHECK(page.missed() == 0);
  CHECK(page.events_size() == 1);
}

TEST_CASE("a waiting follower learns that the agent leaves") {
  // Whether a call waits already cannot be seen from outside; one that came too late was refused.
  v1::NextEventsResponse end;
  grpc::Status status;
  for (auto pause = 50ms; pause < 2s && !end.leaving(); pause *= 2) {
    Scene scene;
    scene.start();
    const auto request = after(ask(scene, v1::NextEventsRequest()), 60s);
    auto waiting = std::async(std::launch::async, [&] { status = scene.call(&Stub::NextEvents, request, end, 60s); });
    std::this_thread::sleep_for(pause);
    scene.stop();
    waiting.get();
  }
  CHECK(status.ok());
  CHECK(end.leaving());
}
