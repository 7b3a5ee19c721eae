// What a pod gets: at which targets, with what, and beside whom.
#include "sweep.hpp"

using namespace corbd;
using test::kId;
using test::published;
using test::Scene;
using test::staged;
using namespace std::chrono_literals;

TEST_CASE("a volume for one pod only is published at one target at a time") {
  Scene scene;
  auto stage = staged();
  stage.capability.single_writer = true;
  REQUIRE(scene.want(stage) == errc::ok);
  REQUIRE(scene.want(published(stage, "/t1")) == errc::ok);
  CHECK(scene.want(published(stage, "/t1")) == errc::ok);
  CHECK(scene.want(published(stage, "/t2")) == errc::failed_precondition);
  CHECK(scene.want(plan::Unpublished{"/t1"}) == errc::ok);
  CHECK(scene.want(published(stage, "/t2")) == errc::ok);
}

TEST_CASE("a pod whose folder somebody removed by hand keeps no other pod from a volume for one pod", "[failure:257]") {
  Scene scene;
  auto stage = staged();
  stage.capability.single_writer = true;
  REQUIRE(scene.want(stage) == errc::ok);
  REQUIRE(scene.want(published(stage, "/t1")) == errc::ok);
  scene.world.kernel.unmount_by_hand(scene.device().index, "/t1");
  CHECK(scene.want(published(stage, "/t2")) == errc::ok);
  CHECK(scene.want(published(stage, "/t1")) == errc::failed_precondition);
  CHECK(scene.want(plan::Unpublished{"/t2"}) == errc::ok);
  CHECK(scene.want(published(stage, "/t1")) == errc::ok);
}

TEST_CASE("a publish has the capability of its stage, but mount flags of its own") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  auto other = published(staged(), "/t");
  other.capability.single_writer = true;
  CHECK(scene.want(other) == errc::failed_precondition);
  auto flags = published(staged(), "/t");
  flags.capability.mount_flags = "noatime";
  CHECK(scene.want(flags) == errc::ok);
  flags.capability.mount_flags = "nodev";
  CHECK(scene.want(flags) == errc::ok);
  CHECK(scene.want(other) == errc::already_exists);
  CHECK_THAT(scene.error(), ContainsSubstring("it is for many pods, and wanted for one pod only"));
}

TEST_CASE(
    "an administrator's nosuid and nodev reach a volume's mount and each bind of it, whatever the volume asks for") {
  Scene scene;
  scene.world.agent.filesystems.mount["ext4"] = "nosuid,nodev,noatime";
  scene.kill_and_start();
  auto stage = staged();
  stage.capability.mount_flags = "suid,dev";
  REQUIRE(scene.want(stage) == errc::ok);
  CHECK(host::protections(scene.world.kernel.mounts.front().options) == "nosuid,nodev");
  const auto flags_at = [&](const std::string& target, const std::string& flags, bool read_only) {
    auto wish = published(stage, target);
    wish.capability.mount_flags = flags;
    wish.read_only = read_only;
    CHECK(scene.want(wish) == errc::ok);
    return scene.world.kernel.bind_flags[target];
  };
  CHECK(host::protections(flags_at("/t1", "", false)) == "nosuid,nodev");
  CHECK(host::protections(flags_at("/t2", "suid,dev", false)) == "nosuid,nodev");
  const auto read_only = flags_at("/t3", "suid,noexec", true);
  CHECK(host::protections(read_only) == "nosuid,nodev,noexec");
  CHECK(host::mounts_read_only(read_only));
}

TEST_CASE("a publish that fails for good leaves nothing that blocks another pod") {
  Scene scene;
  auto stage = staged();
  stage.capability.single_writer = true;
  REQUIRE(scene.want(stage) == errc::ok);
  scene.world.calls.error = {errc::failed_precondition, "made to fail"};
  scene.world.calls.fail_at = 2;  // the bind, after the record
  REQUIRE(scene.want(published(stage, "/t1")) == errc::failed_precondition);
  CHECK(scene.world.disk.records.front().publishes.empty());
  CHECK(scene.want(published(stage, "/t2")) == errc::ok);
}

TEST_CASE("what somebody else mounted at a target is not unmounted") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  host::Mount foreign;
  foreign.target = "/t";
  foreign.dev_major = 8;
  scene.world.kernel.mounts.push_back(foreign);
  CHECK(scene.want(plan::Unpublished{"/t"}) == errc::failed_precondition);
  CHECK(scene.want(published(staged(), "/t")) == errc::failed_precondition);
  CHECK(scene.world.kernel.mounts.size() == 2);
}

TEST_CASE("a filesystem that turned read-only is not published for writing, and an Event says why") {
  Scene scene;
  scene.kill_and_start(true);
  REQUIRE(scene.want(staged()) == errc::ok);
  REQUIRE(scene.want(published(staged(), "/t1")) == errc::ok);
  for (auto& mount : scene.world.kernel.mounts) mount.filesystem_read_only = true;
  CHECK(scene.want(published(staged(), "/t2")) == errc::failed_precondition);
  REQUIRE(scene.world.notices.size() == 1);
  CHECK(scene.world.notices.front().second.reason == "FilesystemReadOnly");
  CHECK(scene.world.disk.records.front().publishes.size() == 1);
  SECTION("a pod that has it already keeps it") { CHECK(scene.want(published(staged(), "/t1")) == errc::ok); }
  SECTION("a pod that only reads may have it") {
    auto reads = published(staged(), "/t2");
    reads.read_only = true;
    CHECK(scene.want(reads) == errc::ok);
  }
}

TEST_CASE("a filesystem that is wanted read-only is published as it is") {
  Scene scene;
  scene.filled();
  auto stage = staged();
  stage.capability.mount_flags = "ro";
  REQUIRE(scene.want(stage) == errc::ok);
  for (auto& mount : scene.world.kernel.mounts) mount.filesystem_read_only = true;
  CHECK(scene.want(published(stage, "/t1")) == errc::ok);
  CHECK(scene.world.notices.empty());
}

namespace {
plan::Published limited(Scene& scene, const plan::Staged& stage) {
  scene.image().metadata[".rbd.csi.ceph.com/cgroup_qos_max_write_iops"] = "100";
  auto wish = published(stage, "/kubelet/pods/p/volume");
  wish.pod_uid = "uid";
  return wish;
}
std::string limit_of(const Scene& scene) {
  return "43:" + std::to_string(scene.world.kernel.devices.front().index * 32) +
         " rbps=max wbps=max riops=max wiops=100";
}
}  // namespace

TEST_CASE("a pod's cgroup has the limit before the pod has the volume, wherever the agent dies in between") {
  for (const auto mounter : {cephcsi::Mounter::nbd, cephcsi::Mounter::krbd})
    for (const test::Blow blow : {test::Blow::crash_before, test::Blow::crash_after})
      for (int at = 1, fell = 1; fell != 0; ++at) {
        Scene scene;
        auto stage = staged();
        stage.mounter = mounter;
        const auto wish = limited(scene, stage);
        REQUIRE(scene.want(stage) == errc::ok);
        const auto has_both = [&](const test::World& world) {
          CHECK(world.kernel.mounts.size() == 2);
          REQUIRE(world.kernel.io_max.contains("uid"));
          CHECK(world.kernel.io_max.at("uid") == std::set{limit_of(scene)});
        };
        fell = survives(scene, "a pod with a limit", wish, has_both, blow, at, errc::unavailable) ? 1 : 0;
      }
}

TEST_CASE("a pod whose cgroup takes no limit has its volume without, and shows none", "[failure:212]") {
  Scene scene;
  const auto wish = limited(scene, staged());
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.kernel.takes_limits = false;
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.world.kernel.mounts.size() == 2);
  CHECK(scene.world.kernel.io_max.empty());
  CHECK(scene.world.agent.shell().status(kId)->io_limits.empty());
}

TEST_CASE("a pod whose cgroup is made after the publish began has its limit", "[failure:212]") {
  Scene scene;
  const auto wish = limited(scene, staged());
  REQUIRE(scene.want(staged()) == errc::ok);
  auto& kernel = scene.world.kernel;
  kernel.takes_limits = false;
  scene.world.loop().outside_in(3s, [&kernel] { kernel.takes_limits = true; });
  CHECK(scene.want(wish) == errc::ok);
  CHECK(kernel.mounts.size() == 2);
  REQUIRE(kernel.io_max.contains("uid"));
  CHECK(kernel.io_max.at("uid").contains(limit_of(scene)));
}

TEST_CASE("a pod has its volume without a limit if the cluster does not tell the limits of the image") {
  for (const auto code : {errc::unavailable, errc::permission_denied}) {
    Scene scene;
    const auto wish = limited(scene, staged());
    REQUIRE(scene.want(staged()) == errc::ok);
    scene.world.calls.error = {code, "made to fail"};
    scene.world.calls.fail_at = 1;
    CHECK(scene.want(wish) == errc::ok);
    CHECK(scene.world.kernel.mounts.size() == 2);
    CHECK(scene.world.kernel.io_max.empty());
  }
}

TEST_CASE("a volume of the kernel client is published with the limit of its stage, without a key") {
  Scene scene;
  auto stage = staged();
  stage.mounter = cephcsi::Mounter::krbd;
  const auto wish = limited(scene, stage);
  REQUIRE(scene.want(stage) == errc::ok);
  scene.kill_and_start();
  scene.world.disk.keys.clear();
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.world.kernel.io_max.at("uid").contains(limit_of(scene)));
  CHECK(scene.world.cluster.opened.empty());
}

TEST_CASE("the status of a volume has the limit of its pod") {
  Scene scene;
  auto wish = limited(scene, staged());
  wish.pod = "db/postgres-0";
  REQUIRE(scene.want(staged()) == errc::ok);
  REQUIRE(scene.want(wish) == errc::ok);
  const auto limits = scene.world.agent.shell().status(kId)->io_limits;
  REQUIRE(limits.size() == 1);
  CHECK(limits.front().pod == "db/postgres-0");
  CHECK(limits.front().limits == cephcsi::IoLimits{.write_iops = 100});
}
