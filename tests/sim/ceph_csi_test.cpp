// A volume that goes to ceph-csi and comes back: its stash, its healer, and what ceph-csi staged anew.
#include "dead.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

/// Served under "uid-1"; then ceph-csi unstaged it, and staged it anew under "uid-2" on a device of the same number.
struct Restaged : Scene {
  std::uint32_t index = 0;
  plan::Staged wish = staged_wish(kId);
  explicit Restaged(bool failed = false) {
    filled();
    REQUIRE(want(wish) == errc::ok);
    REQUIRE(want(plan::Attached{"uid-1"}) == errc::ok);
    if (failed) REQUIRE(want(plan::GivenUp{}) == errc::ok);
    world.agent.stop();
    world.kernel.mounts.clear();
    world.kernel.devices.clear();
    world.disk.stashes.clear();
    image().lock_owner.clear();
    image().watchers.clear();
    index = world.ceph_csi.stages(kId, wish.path);
    REQUIRE(index == *world.disk.records.front().device.index);
    world.attachment = {State::here, "uid-2", ""};
  }
  ~Restaged() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
};

}  // namespace

TEST_CASE(
    "the UID of a served volume's VolumeAttachment is written beside its stash, also after a new one replaced it") {
  Scene scene;
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  const auto& stash = scene.world.disk.stashes.at(staged_wish(kId).path);
  CHECK(stash.attachment == "");
  for (const std::string uid : {"uid-1", "uid-2"}) {
    auto expected = stash;
    expected.attachment = uid;
    REQUIRE(scene.want(plan::Attached{uid}) == errc::ok);
    CHECK(stash == expected);
  }
  REQUIRE(scene.want(plan::Unstaged{staged_wish(kId).path}) == errc::ok);
  CHECK(scene.world.disk.stashes.empty());
}

TEST_CASE("signing one staging path's stash makes none at another path") {
  Scene scene;
  auto wish = staged_wish(kId);
  const std::string first = wish.path;
  REQUIRE(scene.want(wish) == errc::ok);
  wish.path += "-too";
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.disk.stashes.erase(first);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  CHECK_FALSE(scene.world.disk.stashes.contains(first));
}

TEST_CASE("a volume moves to ceph-csi's healer and back, twice, under its writer", "[rule:22]") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = kHere;
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    scene.world.agent.stop();
    scene.world.kernel.application_writes(scene.device(), 0);
    scene.loop.advance(31s);
    scene.world.ceph_csi.heals(0);
    scene.loop.advance(3s);
    scene.world.kernel.application_writes(scene.device(), 1);
    scene.loop.advance(1s);
    scene.world.ceph_csi.ends(0, GENERATE(false, true));
    scene.world.kernel.application_writes(scene.device(), 2);
    scene.world.agent.start(true);
    scene.loop.advance(3min);
    const auto status = scene.world.agent.shell().status(kId);
    CHECK(status->health == Health::staged);
    CHECK_FALSE(status->served_by_other);
    CHECK(scene.device().alive);
    CHECK(scene.device().requests.empty());
    CHECK_FALSE(scene.world.disk.records.front().failed);
  }
  CHECK(scene.world.kernel.errors == 0);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("a device that ceph-csi's healer gave to rbd-nbd is left alone as long as that lives") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = GENERATE(true, false);
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = kHere;
  scene.world.agent.stop();
  scene.loop.advance(31s);
  scene.world.ceph_csi.heals(0);
  const std::string client = scene.world.ceph_csi.daemons.at(0);
  scene.world.agent.start(true);
  scene.loop.advance(5min);
  CHECK(scene.world.agent.shell().status(kId)->served_by_other);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(client));
  CHECK(scene.image().watchers == std::set{client});
  scene.world.ceph_csi.ends(0, false);
  scene.loop.advance(3min);
  CHECK_FALSE(scene.world.agent.shell().status(kId)->served_by_other);
  CHECK(scene.device().alive);
  CHECK(scene.want(plan::Unstaged{staged_wish(kId).path}) == errc::ok);
}

TEST_CASE("a record that stash and kernel contradict is closed: ceph-csi staged the volume anew on another device",
          "[rule:22]") {
  Scene scene;
  scene.filled();
  const auto wish = staged_wish(kId);
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.agent.stop();
  // ceph-csi unstages it, and stages another volume on its device, and this one on the next.
  scene.world.kernel.mounts.clear();
  scene.world.kernel.devices.clear();
  scene.world.disk.stashes.clear();
  scene.image().lock_owner.clear();
  scene.image().watchers.clear();
  scene.world.cluster.images["image-2"].id = "id-2";
  scene.world.ceph_csi.stages("image-2", staged_wish("image-2").path);
  const auto index = scene.world.ceph_csi.stages(kId, wish.path);
  REQUIRE(index == 1);
  const bool rebooted = GENERATE(false, true);
  if (rebooted) scene.world.kernel.boot_id += "'";
  scene.world.agent.start(GENERATE(true, false));
  const int what = GENERATE(range(0, 3));
  CAPTURE(what, rebooted);
  if (what == 0) {
    CHECK(scene.want(plan::Healed{}) == errc::ok);
    CHECK(scene.world.disk.records.empty());
    CHECK(scene.world.ceph_csi.daemons.contains(index));
  }
  if (what == 1) {
    CHECK(scene.want(wish) == errc::ok);
    CHECK(scene.world.disk.records.front().device.index == index);
    CHECK(scene.world.agent.shell().status(kId)->served_by_other);
  }
  if (what == 2) {
    CHECK(scene.want(plan::Unstaged{wish.path}) == errc::ok);
    CHECK(scene.world.kernel.devices.size() == 1);
    CHECK(scene.world.disk.records.empty());
  }
}

TEST_CASE("the record of a volume that ceph-csi unstaged is closed at the next start", "[rule:22]") {
  Scene scene;
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  scene.world.agent.stop();
  scene.world.kernel.mounts.clear();
  scene.world.kernel.devices.clear();
  scene.world.disk.stashes.clear();
  scene.world.agent.start(true);
  scene.loop.advance(1min);
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.world.disk.keys.empty());
}

TEST_CASE("a record is closed if ceph-csi staged the volume anew on a device of the same number", "[rule:22]") {
  Restaged scene;
  const int rbd_nbd = GENERATE(range(0, 3));  // lives, was killed, ended
  CAPTURE(rbd_nbd);
  if (rbd_nbd > 0) scene.world.ceph_csi.ends(scene.index, rbd_nbd == 2);
  scene.loop.advance(1min);
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.image().watchers.size() == (rbd_nbd == 0 ? 1 : 0));
  // As the finder has it.
  scene.wish.attachment = scene.world.attachment;
  CHECK(scene.want(scene.wish) == errc::ok);
  CHECK(scene.world.agent.shell().status(kId)->served_by_other == (rbd_nbd == 0));
  CHECK(scene.device().alive);
  CHECK(scene.world.disk.records.front().proof.attachment_uid == "uid-2");
}

TEST_CASE("a stage takes what ceph-csi staged anew on a device of the same number") {
  Restaged scene;
  scene.world.agent.start();
  CHECK(scene.want(scene.wish) == errc::ok);
  CHECK(scene.world.agent.shell().status(kId)->served_by_other);
}

TEST_CASE("a volume that was given up offers its tombstone to no device that ceph-csi staged anew") {
  Restaged scene(true);
  const bool told = GENERATE(true, false);
  if (!told) scene.world.attachment = {State::unknown, "", "no route to host"};
  scene.world.ceph_csi.ends(scene.index, false);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1min);
  scene.world.agent.start(true);
  scene.loop.advance(2min);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.disk.records.empty() == told);
  scene.world.attachment = {State::here, "uid-2", ""};
  scene.loop.advance(2min);
  scene.wish.attachment = scene.world.attachment;
  CHECK(scene.want(scene.wish) == errc::ok);
  scene.loop.advance(1min);
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE("a stash that is not signed yet does not close the record of a volume that stayed attached") {
  Scene scene;
  scene.filled();
  const bool failed = GENERATE(true, false);
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  if (failed) REQUIRE(scene.want(plan::GivenUp{}) == errc::ok);
  scene.world.disk.stashes.at(staged_wish(kId).path).attachment.clear();
  scene.world.attachment = kHere;
  scene.world.agent.kill();
  scene.image().lock_owner.clear();
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.disk.records.size() == 1);
  CHECK(scene.world.agent.shell().status(kId)->health == (failed ? Health::failed : Health::staged));
}

TEST_CASE(
    "a volume that was attached anew is lost despite an unsigned stash, and an operator override does not count") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  // The agent dies when it knows the attachment, and before the stash has it.
  scene.world.calls.crash_in = "write stash";
  REQUIRE_THROWS_AS(scene.want(plan::Attached{"uid-1"}), Crash);
  scene.world.agent.kill();
  REQUIRE(scene.world.disk.records.front().proof.attachment_uid == "uid-1");
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.cluster.visit(scene.image(), kOther, false);
  scene.world.cluster.leave(scene.image(), kOther, true);
  scene.image().lock_owner.clear();
  scene.world.attachment = {State::here, "uid-2", ""};
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::lost);
  CHECK(scene.want(plan::Healed{true}) == errc::lost);
  CHECK(scene.world.disk.records.size() == 1);
  CHECK(scene.world.kernel.answered == 0);
}
