// Whose an image is when others had its lock: tools of the cluster, other nodes, clients of this node that no file
// tells of (rule 2a).
#include "dead.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("a tool that has the dead client's lock for minutes costs a volume that stayed here only that time") {
  Dead scene;
  scene.forgotten();
  REQUIRE(scene.world.cluster.maintain(scene.image(), kTool));
  scene.start(kHere);
  scene.loop.advance(3min);
  CHECK(scene.health() == Health::unproven);
  CHECK(scene.error().find(kTool) != std::string::npos);
  scene.world.cluster.leave(scene.image(), kTool, true);
  scene.loop.advance(2min);
  CHECK(scene.health() == Health::staged);
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE("without an orchestrator another's lock is unproven, and nothing waiting is written once it is free") {
  Dead scene(false);
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, true));
  scene.start({});
  scene.loop.advance(10min);
  CHECK(scene.health() == Health::unproven);
  scene.world.cluster.leave(scene.image(), kOther, true);
  scene.loop.advance(10min);
  CHECK(scene.health() == Health::unproven);
  CHECK(scene.world.kernel.answered == 0);
}

TEST_CASE("time in which a volume was unproven does not count for giving it up") {
  Dead scene;
  scene.start({State::unknown, "", "no route to host"}, false);
  scene.image().lock_owner = kOther;
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  scene.loop.advance(5min);
  scene.world.attachment = kAway;
  CHECK(scene.want(plan::Healed{}) == errc::lost);
  scene.loop.advance(50s);
  CHECK(scene.want(plan::Healed{}) == errc::lost);
  CHECK_FALSE(scene.world.disk.records.front().failed);
}

TEST_CASE("a lock that was taken from a client that lived is lost where no orchestrator knows more") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  const bool attached = GENERATE(true, false);
  if (attached) REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = attached ? kHere : Attachment{};
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, true));
  scene.loop.advance(1s);
  CHECK(scene.want(plan::Healed{}) == (attached ? errc::unproven : errc::lost));
}

TEST_CASE(
    "a dead client of this node that no file tells of is fenced, and its volume served, when the volume stayed here") {
  Dead scene;
  const std::string client = scene.image().lock_owner;
  scene.world.agent.clients.clear();  // its file was damaged, and set aside
  scene.start(kHere);
  scene.loop.advance(20s);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(client));  // its watch stands: it may live
  CHECK(scene.health() == Health::unproven);
  scene.loop.advance(2min);
  CHECK(scene.world.cluster.blocklisted.contains(client));
  CHECK(scene.health() == Health::staged);
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE(
    "a dead client of this node that no file tells of proves nothing by itself, but the operator's word lets it be "
    "fenced") {
  Dead scene(false);
  const std::string client = scene.image().lock_owner;
  scene.world.agent.clients.clear();
  scene.start({});
  scene.loop.advance(5min);
  CHECK(scene.health() == Health::unproven);
  CHECK(scene.error().find("--without-proof") != std::string::npos);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(client));
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK(scene.world.cluster.blocklisted.contains(client));
}

TEST_CASE("a client of this node that watches lives, and is not fenced whoever vouches") {
  Dead scene;
  scene.forgotten();
  const std::string tool = "10.0.0.1:0/4711";  // `rbd` on this host
  REQUIRE(scene.world.cluster.maintain(scene.image(), tool));
  scene.start(kHere);
  scene.loop.advance(5min);
  CHECK(scene.want(plan::Healed{true}) == errc::unproven);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(tool));
  CHECK_FALSE(scene.device().alive);
}
