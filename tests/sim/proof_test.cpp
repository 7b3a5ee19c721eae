// Whose an image is when others had its lock: tools of the cluster, other nodes, clients of this node that no file
// tells of (rule 2a).
#include "dead.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("a volume that stayed here waits only as long as a tool holds the dead client's lock") {
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

TEST_CASE("a lock that a dead tool left is removed by hand, and then an operator override serves the volume",
          "[rule:2a]") {
  Dead scene;
  scene.forgotten();
  REQUIRE(scene.world.cluster.maintain(scene.image(), kTool));
  scene.world.cluster.leave(scene.image(), kTool, false);
  scene.start({}, false);
  CHECK(scene.want(plan::Healed{true}) == errc::unproven);
  CHECK(scene.error().find("only then `rbd lock rm`") != std::string::npos);
  CHECK_FALSE(scene.device().alive);
  // As docs/runbook.md#corbdvolumeunproven says.
  scene.world.cluster.blocklist(kTool);
  scene.image().lock_owner.clear();
  scene.image().changed();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK(scene.device().alive);
}

TEST_CASE("an image that somebody locked by hand is open only while a heal looks, although a device waits for it",
          "[failure:106]") {
  Dead scene;
  scene.forgotten();
  scene.image().lock_by(kTool);
  scene.image().lock_by_hand = true;
  scene.start(kHere, false);
  CHECK(scene.want(plan::Healed{}) == errc::in_use);
  CHECK_FALSE(scene.watched());
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("what a rescue host wrote since is not written over, although the volume stayed attached here",
          "[failure:160]") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = GENERATE(true, false);
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = kHere;
  const bool dies = GENERATE(true, false);
  if (dies) scene.world.agent.kill();
  if (!dies) scene.world.cluster.blocklist(scene.world.agent.client());
  scene.loop.advance(61s);
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, true));
  scene.world.cluster.leave(scene.image(), kOther, true);
  scene.world.kernel.application_writes(scene.device(), 0);
  if (dies) scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.error().find("another client wrote into it at ") != std::string::npos);
  CHECK(scene.error().find("--without-proof") != std::string::npos);
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("what a client of this very host wrote since is not written over, although only its lock is left",
          "[failure:191][rule:2a]") {
  Dead scene;
  scene.forgotten();
  scene.loop.advance(61s);
  const std::string rescue = scene.world.agent.node_address + ":0/4711";
  REQUIRE(scene.world.cluster.visit(scene.image(), rescue, true));
  scene.world.cluster.leave(scene.image(), rescue, false);
  scene.image().lock_owner = rescue;  // it was killed
  scene.start(kHere);
  scene.loop.advance(2min);
  CHECK(scene.health() == Health::unproven);
  CHECK(scene.error().find("another client wrote into it at ") != std::string::npos);
  CHECK(scene.error().find(rescue) != std::string::npos);
  CHECK_FALSE(scene.device().alive);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(rescue));
}

TEST_CASE("the mark of another node's client is not overruled by the attachment of a volume that has a device here") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = false;
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = kHere;
  scene.world.agent.kill();
  scene.image().writer = kOther;  // within a minute of the stage, so no timestamp shows it
  scene.image().writer_handle = 0;
  scene.image().changed();
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.error().find(kOther + " marked it as its own") != std::string::npos);
  CHECK_FALSE(scene.device().alive);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(kOther));
}

TEST_CASE("this node's own writes do not count as another client's", "[failure:160]") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = kHere;
  scene.loop.advance(3h);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1s);
  REQUIRE(scene.world.cluster.maintain(scene.image(), kTool) == false);
  scene.world.cluster.blocklist(scene.world.agent.client());
  scene.loop.advance(61s);
  REQUIRE(scene.world.cluster.maintain(scene.image(), kTool));
  scene.world.cluster.leave(scene.image(), kTool, true);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.device().alive);
}

TEST_CASE("a volume that a rescue host wrote is served on an operator override, and then as any other",
          "[failure:160]") {
  Dead scene;
  scene.loop.advance(61s);
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, true));
  scene.world.cluster.leave(scene.image(), kOther, true);
  scene.world.kernel.devices.front().visits = scene.image().visits;  // the operator knows that nothing was lost
  scene.start(kHere);
  scene.loop.advance(1min);
  CHECK(scene.health() == Health::unproven);
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK(scene.world.disk.records.front().proof.modified == scene.image().modified);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

TEST_CASE("the image's modify timestamp is recorded for a replaced device, too") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = GENERATE(true, false);
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  const auto before = scene.image().modified;
  scene.world.agent.kill();
  scene.world.kernel.devices.clear();
  scene.world.kernel.mounts.clear();
  scene.loop.advance(61s);
  scene.world.agent.start();
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  CHECK(scene.image().modified > before);
  CHECK(scene.world.disk.records.front().proof.modified == scene.image().modified);
}

TEST_CASE("writes of this node's rbd-nbd do not count as another client's for a volume that stayed attached here",
          "[failure:160]") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = kHere;
  scene.world.agent.stop();
  scene.loop.advance(61s);
  scene.world.ceph_csi.heals(0);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(10s);
  REQUIRE(scene.image().modified != scene.world.disk.records.front().proof.modified);
  scene.world.ceph_csi.ends(0, true);
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.disk.records.front().proof.modified == scene.image().modified);
}

TEST_CASE("without an orchestrator, a volume stays unproven after another client's lock, even once that is free",
          "[failure:16]") {
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

TEST_CASE("time in which a volume was unproven does not count for giving it up", "[rule:2b]") {
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

TEST_CASE("a volume whose living client lost its lock is lost if no orchestrator knows more") {
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
    "a dead client of this node that no file tells of proves nothing by itself, but an operator override lets it be "
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

TEST_CASE("a watching client of this node counts as alive, and an operator override does not fence it") {
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
