// Targets and staging paths: what is left of them, whose they are, and how they are written.
#include "corbd/core/gate.hpp"
#include "scene.hpp"

using namespace corbd;
using plan::Wish;
using test::block_wish;
using test::kId;
using test::kPath;
using test::Scene;
using namespace std::chrono_literals;

namespace {

const std::string kStaged = plan::staging_target(kId, kPath);
const std::string kTarget = "/kubelet/pods/p/mount";

plan::Published filesystem_published(const std::string& target = kTarget) {
  plan::Published wish;
  wish.path = kPath;
  wish.target = target;
  wish.capability = test::staged_wish(kId).capability;
  return wish;
}

plan::Published block_published() {
  auto wish = filesystem_published();
  wish.capability = block_wish().capability;
  return wish;
}

std::string error_of(Scene& scene, const Wish& wish, const std::string& id = kId) {
  const auto done = scene.world.agent.want(id, wish);
  return done ? "" : done.error().text;
}

void stage_second(Scene& scene) {
  scene.world.cluster.images["image-2"].id = "id-2";
  REQUIRE(scene.want(test::staged_wish("image-2"), "image-2") == errc::ok);
}

}  // namespace

// --- What is left of them -----------------------------------------------------------------------

TEST_CASE("after a power loss unpublish and unstage remove the folders that the mounts were made on") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(filesystem_published()) == errc::ok);
  scene.world.reboot();
  scene.world.agent.start();
  REQUIRE(scene.world.disk.places.size() == 2);
  CHECK(scene.want(plan::Unpublished{kTarget}) == errc::ok);
  CHECK_FALSE(scene.world.disk.places.contains(kTarget));
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.disk.places.empty());
}

TEST_CASE("after a death between the making of a folder and its mount the unstage removes the folder") {
  Scene scene;
  scene.filled();
  scene.world.calls.crash_in = "mount";
  CHECK_THROWS_AS(scene.world.agent.want(kId, test::staged_wish(kId)), test::Crash);
  scene.kill_and_start();
  REQUIRE(scene.world.disk.places.contains(kStaged));
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.disk.places.empty());
}

TEST_CASE("an unmount that ended after its caller had left leaves nothing after the next unstage") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.calls.delayed = "unmount";
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::unavailable);
  scene.loop.advance(2min);
  scene.world.disk.places.insert(kStaged);  // it died before its rmdir
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.disk.places.empty());
}

TEST_CASE("a stage and a publish that fail for good leave no folder") {
  Scene scene;
  SECTION("stage") {
    scene.filled();
    scene.image().fstype = "xfs";
    auto wish = test::staged_wish(kId);
    scene.world.calls.before_call = [&](const std::string& call) {
      if (call == "mount") scene.image().fstype = "ext4";
    };
    wish.capability.fstype = "xfs";
    CHECK(scene.want(wish) == errc::failed_precondition);
    CHECK(scene.world.disk.places.empty());
  }
  SECTION("publish") {
    REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
    scene.world.calls.error = {errc::failed_precondition, "made to fail"};
    scene.world.calls.fail_at = 2;  // the bind, after the record
    REQUIRE(scene.want(filesystem_published()) == errc::failed_precondition);
    CHECK(scene.world.disk.places == std::set{kStaged});
  }
}

TEST_CASE("a target that holds something of somebody else stays, and is told once the volume is down") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.disk.filled_places.insert(kStaged);
  CHECK(error_of(scene, plan::Unstaged{kPath}).find(kStaged + " is not mounted and not empty") != std::string::npos);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.image().watchers.empty());
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::failed_precondition);
  scene.world.disk.filled_places.clear();
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.disk.places.empty());
}

TEST_CASE("a stage at a non-empty folder is refused for good, and its undoing needs no empty folder") {
  Scene scene;
  scene.filled();
  scene.world.disk.places.insert(kStaged);
  scene.world.disk.filled_places.insert(kStaged);
  CHECK(scene.want(test::staged_wish(kId)) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
}

// --- Of a device that nobody serves -------------------------------------------------------------

TEST_CASE("an unpublish that is not the last waits for no device, so that healing starts at once") {
  const bool block = GENERATE(false, true);
  test::Calm calm;
  Scene scene;
  scene.world.hazards = &calm;
  if (!block) scene.filled();
  const auto stage = block ? block_wish() : test::staged_wish(kId);
  auto publish = block ? block_published() : filesystem_published();
  REQUIRE(scene.want(stage) == errc::ok);
  for (const std::string pod : {"p1", "p2"}) {
    publish.target = "/kubelet/pods/" + pod + "/mount";
    REQUIRE(scene.want(publish) == errc::ok);
  }
  scene.world.agent.kill();
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.agent.start();
  CHECK(scene.want(plan::Unpublished{"/kubelet/pods/p1/mount"}) == errc::ok);
  CHECK_FALSE(scene.device().alive);
  CHECK(scene.world.kernel.mounts.size() == 2);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.device().alive);
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}

TEST_CASE("the last unmount of a filesystem brings its device up first, and syncs", "[rule:8]") {
  test::Calm calm;
  Scene scene;
  scene.world.hazards = &calm;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(filesystem_published()) == errc::ok);
  // As an earlier version left it.
  std::erase_if(scene.world.kernel.mounts, [](const auto& mount) { return mount.target == kStaged; });
  scene.world.disk.places.erase(kStaged);
  scene.world.disk.records.front().stagings.clear();
  scene.world.agent.kill();
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.agent.start();
  CHECK(scene.want(plan::Unpublished{kTarget}) == errc::ok);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}

// --- Whose they are -----------------------------------------------------------------------------

TEST_CASE("the unstage of a published volume is refused, names the target, and takes nothing down") {
  const bool block = GENERATE(false, true);
  Scene scene;
  REQUIRE(scene.want(block ? block_wish() : test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(block ? block_published() : filesystem_published()) == errc::ok);
  CHECK(error_of(scene, plan::Unstaged{kPath}).find(kTarget) != std::string::npos);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::failed_precondition);
  CHECK(scene.world.kernel.mounts.size() == 2);
  CHECK(scene.device().alive);
  CHECK(scene.want(plan::Unpublished{kTarget}) == errc::ok);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a publish whose mount is gone keeps no volume from being unstaged") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(filesystem_published()) == errc::ok);
  std::erase_if(scene.world.kernel.mounts, [](const auto& mount) { return mount.target == kTarget; });
  scene.world.disk.places.erase(kTarget);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("of a volume with two staging paths the one that no pod uses is unstaged, and the other is refused") {
  Scene scene;
  auto other = test::staged_wish(kId);
  other.path = "/kubelet/staging/second";
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(other) == errc::ok);
  REQUIRE(scene.want(filesystem_published()) == errc::ok);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::failed_precondition);
  CHECK(scene.want(plan::Unstaged{other.path}) == errc::ok);
  CHECK(scene.want(plan::Unpublished{kTarget}) == errc::ok);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a volume's id at another volume's target or staging path is refused, and both are named") {
  Scene scene;
  stage_second(scene);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(filesystem_published()) == errc::ok);
  const std::string wrong = GENERATE("image-2", "never seen");
  for (const Wish& wish :
       {Wish(plan::Unpublished{kTarget}), Wish(plan::Unpublished{kStaged}), Wish(plan::Unstaged{kPath})}) {
    const auto error = error_of(scene, wish, wrong);
    CHECK(error.find("image-1") != std::string::npos);
    CHECK(error.find(wrong) != std::string::npos);
    CHECK(scene.want(wish, wrong) == errc::failed_precondition);
  }
  CHECK(scene.world.kernel.mounts.size() == 3);
  CHECK(scene.world.disk.stashes.contains(kPath));
  CHECK(scene.want(plan::Unpublished{kTarget}) == errc::ok);
}

TEST_CASE("a mount of a device that carries another volume's id is not taken away, also without any record") {
  Scene scene;
  scene.world.ceph_csi.stages(kId, kPath);
  CHECK(scene.want(plan::Unpublished{kStaged}, "image-2") == errc::failed_precondition);
  CHECK(scene.world.kernel.mounts.size() == 1);
}

TEST_CASE("an unstage by another id at a path that ceph-csi staged touches neither the mount nor its stash") {
  Scene scene;
  scene.world.ceph_csi.stages(kId, kPath);
  CHECK(scene.want(plan::Unstaged{kPath}, "image-2") == errc::failed_precondition);
  CHECK(scene.world.disk.stashes.contains(kPath));
  CHECK(scene.world.kernel.mounts.size() == 1);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
}

TEST_CASE("what another volume has mounted over a volume's own mount is not taken away with it") {
  Scene scene;
  stage_second(scene);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  auto over = scene.world.kernel.mounts.front();
  over.target = kStaged;
  scene.world.kernel.mounts.push_back(over);
  CHECK(error_of(scene, plan::Unstaged{kPath}).find("image-2") != std::string::npos);
  CHECK(scene.world.kernel.mounts.size() == 3);
}

// --- How they are written -----------------------------------------------------------------------

TEST_CASE(
    "two spellings of a path are one path, even in an older version's record and through a linked kubelet folder") {
  Scene scene;
  const std::string other_path =
      GENERATE("/kubelet/staging//image-1/", "/kubelet/./staging/image-1", "/linked/staging/image-1");
  const std::string other_target =
      other_path.starts_with("/linked") ? "/linked/pods/p/mount" : "/kubelet/pods//p/mount/";
  auto stage = test::staged_wish(kId);
  auto publish = filesystem_published();
  stage.path = publish.path = other_path;
  publish.target = other_target;
  REQUIRE(scene.want(stage) == errc::ok);
  REQUIRE(scene.want(publish) == errc::ok);
  CHECK(scene.world.disk.places == std::set{kStaged, kTarget});
  scene.world.disk.records.front().stagings.front().path = other_path;
  scene.world.disk.records.front().publishes.front() = {other_target, other_path, false};
  scene.kill_and_start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  const int calls = scene.world.calls.made;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(filesystem_published()) == errc::ok);
  CHECK(scene.world.calls.made == calls);
  CHECK(scene.want(plan::Unpublished{other_target}) == errc::ok);
  CHECK(scene.want(plan::Unstaged{other_path}) == errc::ok);
  CHECK(scene.world.kernel.mounts.empty());
  CHECK(scene.world.disk.places.empty());
}
