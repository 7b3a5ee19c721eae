// Where the image's lock proves nothing, the orchestrator's word does (rule 2a).
#include "scene.hpp"

using namespace corbd;
using plan::Attachment;
using plan::Wish;
using test::kId;
using test::Scene;
using State = Attachment::State;

namespace {

/// A volume that was staged under attachment "uid-1", and whose agent died.
struct Dead : Scene {
  explicit Dead(bool exclusive = false) {
    image().exclusive = exclusive;
    CHECK(want(test::staged_wish(kId)) == errc::ok);
    CHECK(want(plan::Attached{"uid-1"}) == errc::ok);
    world.agent.kill();
    image().lock_owner.clear();
  }
  errc heal(Attachment told) {
    world.attachment = std::move(told);
    world.agent.start();
    return want(plan::Healed{});
  }
};

}  // namespace

TEST_CASE("a volume that stayed attached here is served again, with a free lock and without the feature", "[rule:2a]") {
  Dead scene(GENERATE(false, true));
  CHECK(scene.heal({State::here, "uid-1", ""}) == errc::ok);
  CHECK(scene.device().alive);
}

TEST_CASE("a volume that is not attached here any more is lost") {
  Dead scene;
  CHECK(scene.heal({State::away, "", "it was deleted"}) == errc::lost);
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("a volume that was detached and attached again meanwhile is lost") {
  Dead scene;
  CHECK(scene.heal({State::here, "uid-2", ""}) == errc::lost);
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("while the orchestrator does not answer, what only it can prove is unproven", "[failure:115]") {
  Dead scene;
  CHECK(scene.heal({State::unknown, "", "no route to host"}) == errc::unproven);
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("an attachment that nobody noted while the volume was served proves nothing, nor does its absence") {
  Scene scene;
  scene.image().exclusive = false;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.attachment = {GENERATE(State::here, State::away), "uid-1", ""};
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
}

TEST_CASE("no attachment is noted of a device that nobody serves") {
  Scene scene;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.kill_and_start();
  CHECK(scene.want(plan::Attached{"uid-1"}) == errc::unavailable);
  CHECK(scene.world.disk.records.front().proof.attachment_uid.empty());
}

TEST_CASE("a volume that was attached anew while it was served is served again on its new attachment",
          "[failure:192]") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = GENERATE(true, false);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  CHECK(scene.want(plan::Attached{"uid-2"}) == errc::ok);
  CHECK(scene.world.disk.records.front().proof.attachment_uid == "uid-2");
  scene.world.agent.kill();
  scene.image().lock_owner.clear();
  scene.world.attachment = {State::here, "uid-2", ""};
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.device().alive);
}

TEST_CASE("a volume that another client took from its server while it was attached anew keeps its old attachment",
          "[failure:192]") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = GENERATE(true, false);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  // This node was cut off, and its agent has not heard of it yet.
  const std::string other = "10.0.0.2:0/5";
  (scene.image().exclusive ? scene.image().lock_owner : scene.image().writer) = other;
  scene.image().lock_handle = scene.image().writer_handle = 0;
  CHECK(scene.want(plan::Attached{"uid-2"}) == errc::failed_precondition);
  CHECK(scene.world.disk.records.front().proof.attachment_uid == "uid-1");
}

TEST_CASE("an image that lost its exclusive-lock feature while it was staged is marked, and its mark is handed over",
          "[failure:194]") {
  Scene scene;
  scene.filled();
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.agent.kill();
  scene.image().exclusive = false;
  scene.image().lock_owner.clear();
  scene.world.attachment = {State::here, "uid-1", ""};
  scene.world.agent.start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  const auto marked = scene.world.agent.client();
  CHECK(scene.image().writer == marked);
  scene.world.attachment = {State::unknown, "", "no route to host"};
  scene.world.agent.hand_over();
  CHECK(scene.image().writer == marked);
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.image().writer == scene.world.agent.client());
  CHECK(scene.world.agent.client() != marked);
}

TEST_CASE("a lock that proves ownership needs no answer of the orchestrator", "[failure:114]") {
  Scene scene;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = {State::unknown, "", "no route to host"};
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

TEST_CASE("a stage takes no image of a volume that is attached to another node, though nobody has it open or locked") {
  Scene scene;
  scene.image().exclusive = GENERATE(true, false);
  scene.world.attachment = {State::away, "", "it is attached to node-2"};
  // Whoever deletes the Node of a node that is cut off moves its volumes.
  if (GENERATE(true, false)) scene.world.attachment = {State::unknown, "", "no Node of this name", true};
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
  CHECK(scene.world.kernel.devices.empty());
  scene.world.attachment = {GENERATE(State::here, State::unknown), "uid-1", ""};
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("rbd-nbd's device without a lock is taken over if its stage came with an attachment here") {
  Scene scene;
  scene.image().exclusive = false;
  const auto device = scene.world.ceph_csi.stages(kId, test::staged_wish(kId).path);
  scene.image().lock_owner.clear();
  scene.world.ceph_csi.ends(device, false);
  auto wish = test::staged_wish(kId);
  wish.attachment = {GENERATE(State::here, State::unknown), "uid-1", ""};
  scene.loop.advance(std::chrono::minutes(1));
  const bool attached_here = wish.attachment.state == State::here;
  CHECK((scene.want(wish) == errc::ok) == attached_here);
  CHECK(scene.device().alive == attached_here);
}

TEST_CASE("a volume whose key is gone is shown as one that only a stage can serve, until that brings the key") {
  Scene scene;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.world.agent.shell().unclaimed().empty());
  scene.world.agent.kill();
  scene.world.disk.keys.clear();
  scene.world.agent.start();
  REQUIRE(scene.world.agent.shell().unclaimed().size() == 1);
  CHECK(scene.world.agent.shell().unclaimed().front().volume_id == kId);
  CHECK_FALSE(scene.world.agent.shell().unclaimed().front().mounts.empty());
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.device().alive);
  CHECK(scene.world.agent.shell().unclaimed().empty());
}

TEST_CASE("an operator override overrules no orchestrator that has the volume elsewhere") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.agent.kill();
  scene.world.kernel.application_writes(scene.device(), 0);  // waits in the kernel
  REQUIRE(scene.world.cluster.visit(scene.image(), "10.0.0.2:0/5", true));
  scene.world.cluster.leave(scene.image(), "10.0.0.2:0/5", true);
  scene.world.attachment = {GENERATE(State::away, State::here), "uid-2", "it was deleted"};
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{true}) == errc::lost);
  scene.loop.advance(std::chrono::seconds(10));
  CHECK_FALSE(scene.device().alive);
  CHECK(scene.world.kernel.answered == 0);
}
