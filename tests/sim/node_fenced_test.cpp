// The cluster has fenced this node as a whole.
#include <algorithm>

#include "dead.hpp"

using namespace corbd;
using test::kAway;
using test::kId;
using test::kOther;
using test::kUnstaged;
using test::Scene;
using volume::Health;
using namespace std::chrono_literals;

namespace {

/// A volume that was staged and is written, when its node is fenced.
struct Fenced : Scene {
  explicit Fenced(bool attached = false) {
    kill_and_start(true);
    filled();
    REQUIRE(want(test::staged_wish(kId)) == errc::ok);
    if (attached) REQUIRE(want(plan::Attached{"uid-1"}) == errc::ok);
    if (attached) world.attachment = test::kHere;
    world.cluster.blocklisted.clear();  // of the first life
    client = world.agent.client();
    world.cluster.fence_host(world.agent.node_address);
    world.kernel.application_writes(device(), 0);
    loop.advance(2min);
  }
  ~Fenced() {
    if (world.agent.running()) world.agent.kill();
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  volume::Status status() { return *world.agent.shell().status(kId); }
  std::string client;  ///< before the fence
};

}  // namespace

TEST_CASE("a node that is fenced serves nothing, says why, and adds nothing to the blocklist with its tries",
          "[failure:142]") {
  Fenced scene;
  CHECK_FALSE(scene.device().alive);
  REQUIRE(scene.status().last_error);
  CHECK(scene.status().last_error->code == errc::node_fenced);
  CHECK(scene.status().health == Health::reconnecting);
  scene.loop.advance(10min);
  CHECK(scene.world.cluster.blocklisted.empty());
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a volume that is still this node's is served again when the node's fence has ended", "[failure:142]") {
  Fenced scene;
  scene.world.cluster.unfence_host(scene.world.agent.node_address);
  scene.loop.advance(2min);
  CHECK(scene.device().alive);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.cluster.cut_off_clients() == std::set{scene.client});
}

TEST_CASE("a fence that ended before its node noticed it invalidates no proof", "[failure:142]") {
  struct Late : test::Calm {
    duration any(duration limit) override { return limit / 2; }  // an image hears after 1 s that it is cut off
  } late;
  Scene scene;
  scene.kill_and_start(true);
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.hazards = &late;
  scene.world.cluster.fence_host(scene.world.agent.node_address);
  scene.loop.advance(500ms);
  scene.world.cluster.unfence_host(scene.world.agent.node_address);
  scene.loop.advance(2min);
  CHECK(scene.device().alive);
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}

TEST_CASE("an agent that starts on a fenced node waits for the end of the fence") {
  Fenced scene;
  scene.kill_and_start(true);
  scene.loop.advance(10min);
  CHECK(scene.status().last_error->code == errc::node_fenced);
  CHECK(scene.world.cluster.blocklisted.empty());
  scene.world.cluster.unfence_host(scene.world.agent.node_address);
  scene.loop.advance(2min);
  CHECK(scene.device().alive);
  CHECK(scene.world.cluster.cut_off_clients() == std::set{scene.client});
}

TEST_CASE("a volume of a fenced node that another node took meanwhile is not served when the fence has ended",
          "[failure:142]") {
  Fenced scene;
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, false));
  scene.world.cluster.unfence_host(scene.world.agent.node_address);
  scene.loop.advance(10min);
  CHECK(scene.world.kernel.answered == 0);
  CHECK(scene.image().lock_owner == kOther);
}

TEST_CASE("a volume of a fenced node that is attached elsewhere is lost, answers with errors, and can be unstaged",
          "[failure:142]") {
  Fenced scene(true);
  CHECK(scene.status().health == Health::reconnecting);
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, false));
  scene.world.attachment = kAway;
  scene.loop.advance(1min);
  CHECK(scene.status().health == Health::lost);
  CHECK(scene.world.kernel.errors == 0);
  scene.loop.advance(2min);
  CHECK(scene.status().health == Health::failed);
  CHECK(scene.world.kernel.errors == 1);
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a stage on a fenced node says that the node is fenced, and succeeds when that has ended") {
  Scene scene;
  scene.world.cluster.fence_host(scene.world.agent.node_address);
  if (GENERATE(true, false)) scene.kill_and_start();
  // A client of before the fence finds out first.
  if (scene.want(test::staged_wish(kId)) == errc::fenced) CHECK(scene.world.agent.client().empty());
  CHECK(scene.want(test::staged_wish(kId)) == errc::node_fenced);
  CHECK(scene.world.cluster.blocklisted.empty());
  CHECK(scene.world.disk.records.empty());
  scene.world.cluster.unfence_host(scene.world.agent.node_address);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("a volume that is lost without an orchestrator gets its errors in the same try that gives it up") {
  Scene scene;
  scene.kill_and_start(true);
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, true));
  scene.world.kernel.application_writes(scene.device(), 0);
  const auto end = scene.loop.clock.now() + 5min;
  while (!scene.world.disk.records.front().failed && scene.loop.clock.now() < end) scene.loop.step(end);
  REQUIRE(scene.world.disk.records.front().failed);
  CHECK_FALSE(scene.device().alive);
  scene.loop.advance(1s);
  CHECK(scene.device().alive);  // its tombstone
  scene.loop.advance(1min);
  CHECK(scene.world.kernel.errors == 1);
}

TEST_CASE("calls for a lost volume do not delay its giving up while a helper hangs", "[failure:141]") {
  test::Calm calm;
  Scene scene;
  scene.world.hazards = &calm;
  scene.kill_and_start(true);
  scene.filled();
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "probe") REQUIRE(scene.world.cluster.visit(scene.image(), kOther, true));
  };
  CHECK(scene.want(test::staged_wish(kId)) != errc::ok);
  for (int tries = 0; tries < 12; ++tries) {
    static_cast<void>(scene.want(kUnstaged));
    scene.loop.advance(10s);
  }
  CHECK(scene.world.kernel.devices.empty());
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}

TEST_CASE("an unpublish without anything to do does not delay the giving up of a lost volume", "[failure:141]") {
  Fenced scene(true);
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, false));
  scene.world.attachment = kAway;
  for (int tries = 0; tries < 18; ++tries) {
    CHECK(scene.want(plan::Unpublished{"/kubelet/pods/p/" + kId}) == errc::ok);
    scene.loop.advance(10s);
  }
  CHECK(scene.status().health == Health::failed);
}
