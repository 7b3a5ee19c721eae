// A take-over with every one of its calls failed or its agent killed, and this node fenced before every call of a
// stage.
#include "sweep.hpp"

using namespace corbd;
using plan::Attachment;
using test::Blow;
using test::kId;
using test::Scene;
using namespace std::chrono_literals;

namespace {

const std::string kHolder = "10.0.0.7:0/1", kHost = "10.0.0.7";

struct Story {
  std::string name;
  bool fenced;  ///< its host; otherwise its node is out of service
};

void is_served(const test::World& world) {
  REQUIRE(world.kernel.devices.size() == 1);
  CHECK(world.kernel.devices.front().alive);
  CHECK(world.cluster.blocklisted.contains(kHolder));
}

/// The image has a lock: without one nothing shows a fenced holder once the OSDs know of the fence. Afterwards the
/// fence ends, and what the holder had sent arrives.
bool tell(const Story& story, Blow blow, int at, errc code) {
  Scene scene;
  scene.filled();
  REQUIRE(scene.world.cluster.visit(scene.image(), kHolder, false));
  if (story.fenced) scene.world.cluster.fence_host(kHost, 1h);
  scene.world.nodes.by_name["node-7"] = {.address = kHost, .ready = false, .out_of_service = true};
  scene.world.attachment = {Attachment::State::here, "uid-1", ""};
  scene.world.agent.fence_out_of_service = !story.fenced;
  scene.world.agent.kill();
  scene.world.agent.clients.clear();
  scene.world.agent.start();
  const bool fell = test::survives(scene, story.name, test::staged_wish(kId), is_served, blow, at, code);
  scene.world.cluster.unfence_host(kHost);
  scene.world.cluster.late_write(scene.image().id, kHolder);
  scene.loop.advance(10s);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  return fell;
}

/// False: the stage has fewer calls.
bool fenced_before_call(int at, bool taken_meanwhile) {
  const std::string other = "10.0.0.2:0/1";
  Scene scene;
  scene.filled();
  int calls = 0;
  scene.world.calls.before_call = [&](const std::string&) {
    if (++calls != at) return;
    scene.world.cluster.fence_host(scene.world.agent.node_address);
    // Its lock is broken only where ours is not watched any more.
    if (taken_meanwhile) static_cast<void>(scene.world.cluster.visit(scene.image(), other, false));
    scene.loop.outside_in(40s, [&] {
      if (taken_meanwhile) scene.world.cluster.leave(scene.image(), other, true);
      scene.world.cluster.unfence_host(scene.world.agent.node_address);
    });
  };
  result<> done = Error{errc::internal, "never asked"};
  for (int tries = 0; tries < 60 && !done; ++tries) {
    done = scene.world.agent.want(kId, test::staged_wish(kId));
    scene.loop.advance(2s);
  }
  scene.loop.advance(60s);
  INFO("fenced before call " << at << (done ? "" : ": " + done.error().text));
  // What has a device already, and was another node's since, is not served on a mere free lock.
  CHECK((done || (taken_meanwhile && done.error().code == errc::unproven)));
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  return calls >= at;
}

}  // namespace

TEST_CASE("a take-over survives any failure, and no late write of the former holder lands after it", "[failure:141]") {
  test::sweep<Story>({{"a fenced holder", true}, {"a holder whose node is out of service", false}}, &tell);
}

TEST_CASE("a node that is fenced before any call of a stage stages the volume once the fence has ended",
          "[failure:142]") {
  const bool taken_meanwhile = GENERATE(true, false);
  int at = 1;
  while (fenced_before_call(at, taken_meanwhile) && at < 100) ++at;
  CHECK(at > 10);
  CHECK(at < 100);
}
