// Who has a device open, or disconnects it, besides us and the volume's pods.
#include "scene.hpp"

using namespace corbd;
using test::block_wish;
using test::kUnstaged;
using namespace std::chrono_literals;
using test::kId;
using test::Scene;
using volume::Health;

namespace {

Health health(Scene& scene) { return scene.world.agent.shell().status(kId)->health; }

}  // namespace

TEST_CASE("an unstage disconnects its device once, waits as long as another program has it open, and says so",
          "[failure:116][rule:8]") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.kernel.open_device(0);
  int disconnects = 0;
  scene.world.calls.before_call = [&](const std::string& call) { disconnects += call == "disconnect" ? 1 : 0; };
  const bool soon = GENERATE(true, false);
  if (soon) scene.loop.outside_in(10s, [&] { scene.world.kernel.close_device(0); });
  const auto done = scene.world.agent.want(kId, kUnstaged);
  CHECK(done.has_value() == soon);
  CHECK(disconnects == 1);
  if (soon) return;
  CHECK(done.error().code == errc::unavailable);
  CHECK(done.error().text.find("fuser -v /dev/nbd0") != std::string::npos);
  // The kernel refuses it a link from then on: a repeat waits, too, also by the next agent.
  if (GENERATE(true, false)) scene.kill_and_start();
  CHECK(scene.want(kUnstaged) == errc::unavailable);
  scene.world.kernel.close_device(0);
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE(
    "a volume that is staged again while another program has its disconnected device open gets a new one once that is "
    "closed",
    "[failure:116]") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.kernel.open_device(0);
  REQUIRE(scene.want(kUnstaged) == errc::unavailable);
  scene.loop.outside_in(5s, [&] { scene.world.kernel.close_device(0); });
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.device().alive);
  CHECK_FALSE(scene.device().disconnected);
}

TEST_CASE(
    "a volume whose unused device another program disconnected is absent from the next look on, and can be unstaged "
    "and staged anew",
    "[failure:113]") {
  Scene scene;
  REQUIRE(scene.want(block_wish()) == errc::ok);
  scene.world.kernel.disconnect(0);
  REQUIRE(scene.world.kernel.devices.empty());
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(health(scene) == Health::absent);
  CHECK_FALSE(scene.world.agent.shell().status(kId)->unserved_since);
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.want(block_wish()) == errc::ok);
}

TEST_CASE(
    "a raw device that another program disconnected under a pod is not remade, nor its number reused, before the pod "
    "has ended",
    "[failure:113]") {
  Scene scene;
  const auto wish = block_wish();
  REQUIRE(scene.want(wish) == errc::ok);
  REQUIRE(scene.want(plan::Published{wish.path, "/kubelet/pods/p/" + kId, false, wish.capability}) == errc::ok);
  scene.world.kernel.disconnect(0);
  CHECK(scene.want(wish) == errc::unavailable);
  scene.world.cluster.images["image-2"].id = "id-2";
  if (GENERATE(true, false)) scene.kill_and_start();
  REQUIRE(scene.want(test::staged_wish("image-2"), "image-2") == errc::ok);
  CHECK(scene.device().index == 1);
  // An unstage that does not wait for the pod's end.
  CHECK(scene.want(kUnstaged) == errc::failed_precondition);
  CHECK(scene.world.disk.records.size() == 2);
  CHECK(scene.want(plan::Unpublished{"/kubelet/pods/p/" + kId}) == errc::ok);
  CHECK(scene.world.disk.records.size() == 2);
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.want(plan::Unstaged{wish.path}) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE(
    "a mounted volume whose device another program disconnected is absent, and unstaged and staged anew once its pods "
    "have ended",
    "[failure:113]") {
  Scene scene;
  const bool encrypted = GENERATE(false, true);
  const bool restarted = GENERATE(false, true);
  const auto wish = encrypted ? test::encrypted_wish(kId) : test::staged_wish(kId);
  if (encrypted) scene.world.cluster.provision_encrypted(kId, "default");
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.kernel.disconnect(0);
  if (restarted) scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unavailable);
  CHECK(health(scene) == Health::absent);
  CHECK(scene.want(wish) == errc::unavailable);
  CHECK(scene.want(plan::Unstaged{wish.path}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.want(wish) == errc::ok);
  CHECK(health(scene) == Health::staged);
  CHECK(scene.device().alive);
}

TEST_CASE("a device that rbd-nbd has open until it has ended is disconnected once, and waited for", "[failure:116]") {
  Scene scene;
  scene.world.ceph_csi.stages(kId, kUnstaged.path);
  int disconnects = 0;
  scene.world.calls.before_call = [&](const std::string& call) { disconnects += call == "disconnect" ? 1 : 0; };
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(disconnects == 1);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.ceph_csi.daemons.empty());
}
