// Our own watch: where nothing is served, this node keeps the image from nobody.
#include "dead.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("a stage that finds the image in use closes it") {
  Scene scene;
  scene.image().watchers.insert(kOther);
  CHECK(scene.want(staged_wish(kId)) == errc::in_use);
  CHECK(scene.image().watchers == std::set{kOther});
}

TEST_CASE("the image of an unproven or lost volume is closed", "[rule:2a]") {
  Dead scene;
  const int which = GENERATE(range(0, 3));
  const Attachment told = which == 0 ? kHere : which == 1 ? Attachment() : kAway;
  scene.image().watchers.insert(kOther);
  scene.start(told, false);
  CHECK(scene.want(plan::Healed{}) == (told.state == State::away ? errc::lost : errc::unproven));
  CHECK_FALSE(scene.watched());
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("a node whose volume moved lets the new node's agent open the image") {
  Dead scene;
  scene.forgotten();
  scene.start(kAway);
  scene.world.cluster.other_agent_waits(kId, kOther);
  scene.loop.advance(3min);
  CHECK(scene.world.cluster.other_agents.contains(kOther));
  CHECK(scene.health() == Health::failed);
}

TEST_CASE("a node without proof lets another node's agent open the image, and never writes over it") {
  Dead scene(false);
  scene.forgotten();
  scene.image().lock_owner.clear();
  scene.start({});
  scene.world.cluster.other_agent_waits(kId, kOther);
  scene.loop.advance(3min);
  CHECK(scene.world.cluster.other_agents.contains(kOther));
  CHECK(scene.health() == Health::unproven);
  scene.world.cluster.leave(scene.image(), kOther, true);
  scene.loop.advance(10min);
  CHECK(scene.health() == Health::unproven);
}

TEST_CASE("exactly one of a healing node and a waiting agent gets the image") {
  Dead scene(GENERATE(true, false));
  const bool stayed = !scene.world.disk.records.front().proof.attachment_uid.empty();
  scene.world.cluster.other_agent_waits(kId, kOther, GENERATE(200ms, 2s));
  scene.start(stayed ? kHere : Attachment{});
  scene.loop.advance(10min);
  const bool ours = scene.health() == Health::staged;
  CHECK(ours != scene.world.cluster.other_agents.contains(kOther));
  CHECK(scene.world.kernel.answered == (ours ? 1 : 0));
}

TEST_CASE("exactly one of two agents that stage one image gets it") {
  Scene scene;
  scene.world.cluster.other_agent_waits(kId, kOther, 5s);
  bool ours = false;
  for (int tries = 0; tries < 20 && !ours; ++tries) {
    ours = scene.want(staged_wish(kId)) == errc::ok;
    scene.loop.advance(std::chrono::milliseconds(1700 + 100 * tries));
  }
  CHECK(ours != scene.world.cluster.other_agents.contains(kOther));
}
