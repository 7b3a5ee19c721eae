// Staging paths: a second one of a volume, one whose mount somebody took away, one from before a reboot.
#include "sweep.hpp"

using namespace corbd;
using test::kId;
using test::published;
using test::Scene;
using test::staged;
using test::World;

namespace {
plan::Staged untyped(const std::string& path = test::kPath) {
  auto wish = staged(path);
  wish.capability.fstype.clear();
  return wish;
}
}  // namespace

TEST_CASE("a request that names no filesystem gets the one that is there, which grows and is published as that one",
          "[failure:254]") {
  Scene scene;
  scene.filled();
  scene.image().fstype = GENERATE("ext4", "xfs", "ext3", "btrfs");
  scene.image().filesystem_bytes = scene.image().size;
  REQUIRE(scene.want(untyped()) == errc::ok);
  CHECK(scene.world.kernel.mounts.front().fstype == scene.image().fstype);
  CHECK(scene.want(untyped()) == errc::ok);
  CHECK(scene.want(untyped("/second")) == errc::ok);
  CHECK(scene.want(published(untyped(), "/t")) == errc::ok);
  scene.image().size *= 2;
  CHECK(scene.want(plan::Expanded{test::kPath, scene.image().size}) == errc::ok);
  CHECK(scene.image().growths == 1);
  for (const auto& staging : scene.world.disk.records.front().stagings)
    CHECK(staging.capability.fstype == scene.image().fstype);
  auto typed = untyped();
  typed.capability.fstype = scene.image().fstype;
  CHECK(scene.want(typed) == errc::ok);
}

TEST_CASE("an empty image of a request that names no filesystem gets ext4", "[failure:254]") {
  Scene scene;
  REQUIRE(scene.want(untyped()) == errc::ok);
  CHECK(scene.image().fstype == "ext4");
  CHECK(scene.image().generation == 1);
}

TEST_CASE("a filesystem that the agent does not mount is named, whatever the request says", "[failure:254]") {
  Scene scene;
  scene.filled();
  scene.image().fstype = "ext2";
  const auto done = scene.world.agent.want(kId, plan::Wish(GENERATE(true, false) ? untyped() : staged()));
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::failed_precondition);
  CHECK_THAT(done.error().text, ContainsSubstring("holds ext2"));
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a volume that ceph-csi mounted is known by the filesystem that is mounted, and grows as that",
          "[failure:254]") {
  Scene scene;
  auto wish = untyped();
  if (GENERATE(false, true)) {
    wish.mounter = cephcsi::Mounter::krbd;
    scene.world.ceph_csi.stages_with_krbd(kId, test::kPath, kId);
  } else {
    scene.world.ceph_csi.stages(kId, test::kPath);
  }
  scene.image().fstype = "xfs";
  for (auto& mount : scene.world.kernel.mounts) mount.fstype = "xfs";
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(scene.world.disk.records.front().stagings.front().capability.fstype == "xfs");
}

TEST_CASE("a second staging path mounts the same device, unchecked, and each path is unstaged by itself") {
  Scene scene;
  REQUIRE(scene.want(staged("/a")) == errc::ok);
  const int checks = scene.image().checks;
  REQUIRE(scene.want(staged("/b")) == errc::ok);
  CHECK(scene.image().checks == checks);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(plan::Unstaged{"/a"}) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(staged("/b")) == errc::ok);
  CHECK(scene.want(plan::Unstaged{"/b"}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
}

namespace {
const std::string kPlugins = "/var/lib/kubelet/plugins/kubernetes.io/csi/";
const std::string kOldPath = kPlugins + "pv/pv-1/globalmount", kNewPath = kPlugins + "driver/0123abcd/globalmount";
}  // namespace

TEST_CASE("the path at which kubelet staged before 1.24 goes with the path at which it stages since", "[failure:256]") {
  Scene scene;
  REQUIRE(scene.want(staged(kOldPath)) == errc::ok);
  REQUIRE(scene.want(published(staged(kOldPath), "/t")) == errc::ok);
  REQUIRE(scene.want(staged(kNewPath)) == errc::ok);
  SECTION("not before its pods have ended") {
    CHECK(scene.want(plan::Unstaged{kNewPath}) == errc::failed_precondition);
    CHECK(scene.world.disk.records.front().stagings.size() == 2);
  }
  REQUIRE(scene.want(plan::Unpublished{"/t"}) == errc::ok);
  CHECK(scene.want(plan::Unstaged{kNewPath}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.kernel.mounts.empty());
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.image().lock_owner.empty());
}

TEST_CASE("the path at which Nomad staged before it named namespaces goes with the path at which it stages since",
          "[failure:256]") {
  const std::string base = "/csi/node/plugin/staging/";
  const std::string old = base + "db/rw-file-system-single-node-writer";
  Scene scene;
  REQUIRE(scene.want(staged(old)) == errc::ok);
  SECTION("not with that of another volume, another usage or a deeper folder") {
    for (const auto* other : {"default/logs/rw-file-system-single-node-writer", "default/db/ro-file-system",
                              "a/default/db/rw-file-system-single-node-writer"}) {
      REQUIRE(scene.want(staged(base + other)) == errc::ok);
      CHECK(scene.want(plan::Unstaged{base + other}) == errc::ok);
      CHECK(scene.world.kernel.devices.size() == 1);
    }
  }
  const std::string now = base + "default/db/rw-file-system-single-node-writer";
  REQUIRE(scene.want(staged(now)) == errc::ok);
  CHECK(scene.want(plan::Unstaged{now}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.image().lock_owner.empty());
}

namespace {
/// `id-1` and `id-2`, as two namespaces of Nomad may have them.
void stage_two_at_one_path(Scene& scene) {
  scene.world.cluster.images["image-2"].id = "id-2";
  auto second = test::staged_wish("image-2");
  second.path = test::kPath;
  REQUIRE(scene.want(staged()) == errc::ok);
  REQUIRE(scene.want(second, "image-2") == errc::ok);
}
}  // namespace

TEST_CASE("two volumes that are staged at one path have a mount each, and each is unstaged by itself") {
  Scene scene;
  stage_two_at_one_path(scene);
  REQUIRE(scene.world.kernel.mounts.size() == 2);
  CHECK(scene.world.kernel.mounts.front().target == plan::staging_target(kId, test::kPath));
  CHECK(scene.world.kernel.mounts.back().target == plan::staging_target("image-2", test::kPath));
  CHECK(scene.want(test::kUnstaged) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.world.kernel.mounts.size() == 1);
  CHECK(scene.world.disk.stashes.contains(test::kPath));
  CHECK(scene.want(test::kUnstaged, "image-2") == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK_FALSE(scene.world.disk.stashes.contains(test::kPath));
}

TEST_CASE(
    "an unstage at a path where another volume is staged takes its own volume down, wherever the agent dies in it") {
  bool fell = true;
  for (int at = 1; fell && at < 100; ++at) {
    INFO("the agent died before call " << at);
    Scene scene;
    stage_two_at_one_path(scene);
    scene.world.calls.crash_at = at;
    // If the healing of the next agent has ended the unstage, nobody knows that the volume was ever there.
    if (const auto done = test::insist(scene, test::kUnstaged); !done)
      CHECK(done.error().code == errc::failed_precondition);
    fell = scene.world.calls.crash_at == 0;
    CHECK(scene.world.kernel.devices.size() == 1);
    CHECK(scene.world.kernel.mounts.size() == 1);
    CHECK(scene.world.disk.stashes.contains(test::kPath));
  }
}

TEST_CASE("the undo of a stage at kubelet's path of today leaves its path of before alone", "[failure:256]") {
  Scene scene;
  REQUIRE(scene.want(staged(kOldPath)) == errc::ok);
  scene.world.calls.error = {errc::failed_precondition, "made to fail"};
  for (int at = 1; at < 5; ++at) {
    scene.world.calls.fail_at = at;
    scene.want(staged(kNewPath));
    scene.world.calls.fail_at = 0;
    CHECK(scene.want(staged(kOldPath)) == errc::ok);
    CHECK(scene.world.kernel.devices.size() == 1);
  }
}

TEST_CASE("a second staging path that mounts read-only what the first mounts writable is refused with both words",
          "[failure:255]") {
  Scene scene;
  REQUIRE(scene.want(staged("/a")) == errc::ok);
  auto other = staged("/b");
  other.capability.mount_flags = "ro";
  CHECK(scene.want(other) == errc::failed_precondition);
  CHECK_THAT(scene.error(), ContainsSubstring("mounted writable at /a"));
}

TEST_CASE("a second staging path that uses the device in another way is refused, and the first stays", "[failure:23]") {
  Scene scene;
  REQUIRE(scene.want(staged("/a")) == errc::ok);
  auto other = staged("/b");
  SECTION("as a block device") {
    other.capability.block = true;
    other.capability.fstype.clear();
  }
  SECTION("read-only") { other.capability.read_only = true; }
  SECTION("as another filesystem") { other.capability.fstype = "xfs"; }
  CHECK(scene.want(other) == errc::failed_precondition);
  CHECK(scene.want(staged("/a")) == errc::ok);
  CHECK(scene.world.disk.records.front().stagings.size() == 1);
}

TEST_CASE("a second stage that fails for good takes back only what it added", "[rule:I6]") {
  Scene scene;
  REQUIRE(scene.want(staged("/a")) == errc::ok);
  REQUIRE(scene.want(published(staged("/a"), "/t")) == errc::ok);
  const int calls = scene.world.calls.made;
  World& world = scene.world;
  world.calls.error = {errc::failed_precondition, "made to fail"};
  for (int at = 1; at < 5; ++at) {
    world.calls.fail_at = at;
    scene.want(staged("/b"));
    world.calls.fail_at = 0;
    CHECK(world.kernel.mounts.size() >= 2);
    scene.want(plan::Unstaged{"/b"});
    REQUIRE(world.disk.records.size() == 1);
    CHECK(world.disk.records.front().stagings.size() == 1);
    CHECK(world.kernel.devices.size() == 1);
  }
  CHECK(world.calls.made > calls);
}

TEST_CASE("a volume whose staging mount another program removed under its pod is staged there again") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  REQUIRE(scene.want(published(staged(), "/t")) == errc::ok);
  std::erase_if(scene.world.kernel.mounts,
                [](const auto& mount) { return mount.target == plan::staging_target(kId, staged().path); });
  CHECK(scene.want(plan::Unstaged{staged().path}) == errc::failed_precondition);
  CHECK(scene.want(staged()) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(plan::Unpublished{"/t"}) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(plan::Unstaged{staged().path}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("after a reboot a stage begins anew, also before healing closed the old record", "[failure:28]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.agent.kill();
  scene.world.kernel.devices.clear();
  scene.world.kernel.mounts.clear();
  scene.world.disk.keys.clear();
  scene.world.kernel.boot_id = "boot-2";
  scene.world.agent.start();
  CHECK(scene.want(staged()) == errc::ok);
  CHECK(scene.world.disk.records.front().device.boot_id == "boot-2");
}

TEST_CASE("a filesystem is mounted with the options of its type, followed by those of its volume") {
  Scene scene;
  scene.world.agent.filesystems.mount = {{"ext4", "errors=remount-ro"}, {"xfs", "nouuid"}};
  scene.kill_and_start();
  auto wish = staged();
  wish.capability.mount_flags = "noatime,errors=continue";
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(scene.world.kernel.mounts.front().options == "errors=remount-ro,noatime,errors=continue");
  SECTION("a stage that is repeated under other options asks for the same") {
    scene.world.agent.filesystems.mount.clear();
    scene.kill_and_start();
    CHECK(scene.want(wish) == errc::ok);
  }
}
