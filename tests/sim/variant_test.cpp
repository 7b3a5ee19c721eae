// The cases beside the straight line: read-only, several staging paths, pods of their own, several ids on one image, a
// reboot in between.
#include "corbd/core/gate.hpp"
#include "scene.hpp"

using namespace corbd;
using plan::Wish;
using test::kId;
using test::Scene;
using test::World;

namespace {

plan::Staged staged(const std::string& path = "/kubelet/staging/image-1") {
  auto wish = test::staged_wish(kId);
  wish.path = path;
  return wish;
}

plan::Staged read_only(bool block = false) {
  auto wish = staged();
  wish.capability.read_only = true;
  wish.capability.block = block;
  if (block) wish.capability.fstype.clear();
  return wish;
}

plan::Published published(const plan::Staged& at, const std::string& target) {
  plan::Published wish;
  wish.path = at.path;
  wish.target = target;
  wish.capability = at.capability;
  return wish;
}

}  // namespace

TEST_CASE("a read-only volume is mounted without a lock, a check or a format") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(read_only()) == errc::ok);
  CHECK(scene.image().lock_owner.empty());
  CHECK(scene.image().checks == 0);
  CHECK(scene.world.kernel.devices.front().read_only);
  CHECK(scene.want(read_only()) == errc::ok);
  CHECK(scene.want(published(read_only(), "/t")) == errc::ok);
}

TEST_CASE("a read-only volume without a filesystem is refused, and nothing is left of it") {
  Scene scene;
  CHECK(scene.want(read_only()) == errc::failed_precondition);
  CHECK(scene.image().generation == 0);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a read-only volume of an image that another client has locked and open is served") {
  Scene scene;
  scene.filled();
  scene.image().lock_owner = "10.0.0.2:0/5";
  scene.image().watchers.insert("10.0.0.2:0/5");
  CHECK(scene.want(read_only(GENERATE(true, false))) == errc::ok);
}

TEST_CASE("a read-only volume needs no proof of ownership to be healed") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(read_only()) == errc::ok);
  scene.world.agent.kill();
  scene.image().watchers.insert("10.0.0.2:0/5");
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().alive);
}

TEST_CASE("two read-only volumes may have one image, a writer beside a reader may not") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(read_only()) == errc::ok);
  auto second = read_only();
  second.path = "/kubelet/staging/second";
  CHECK(scene.want(second, "second") == errc::ok);
  auto writer = staged("/kubelet/staging/third");
  CHECK(scene.want(writer, "third") == errc::in_use);
}

TEST_CASE("of two volumes that want one image at the same moment one gets it") {
  Scene scene;
  Gate gate(scene.loop.control(), scene.loop.clock);
  std::vector<errc> ends;
  const auto ask = [](Scene& in, std::vector<errc>& into, std::string id, std::string path) -> task<> {
    const auto done = co_await in.world.agent.shell().want(std::move(id), Wish(staged(path)), {});
    into.push_back(done ? errc::ok : done.error().code);
  };
  gate.spawn(ask(scene, ends, "first", "/kubelet/staging/first"));
  gate.spawn(ask(scene, ends, "second", "/kubelet/staging/second"));
  scene.loop.advance(std::chrono::seconds(10));
  std::sort(ends.begin(), ends.end());
  CHECK(ends == std::vector{errc::ok, errc::in_use});
  CHECK(scene.world.kernel.devices.size() == 1);
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

TEST_CASE("a second staging path that uses the device in another way is refused, and the first stays") {
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

TEST_CASE("a second stage that fails for good takes back only what it added") {
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

TEST_CASE("a volume whose staging mount somebody took away under its pod is staged there again") {
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

TEST_CASE("a publish has the capability of its stage, but mount flags of its own") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  auto other = published(staged(), "/t");
  other.capability.single_writer = true;
  CHECK(scene.want(other) == errc::failed_precondition);
  auto flags = published(staged(), "/t");
  flags.capability.mount_flags = "noatime";
  CHECK(scene.want(flags) == errc::ok);
  CHECK(scene.want(other) == errc::already_exists);
}

TEST_CASE("after a reboot a stage begins anew, also before healing closed the old record") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.agent.kill();
  scene.world.kernel.devices.clear();
  scene.world.kernel.mounts.clear();
  scene.world.disk.keys.clear();
  scene.world.kernel.boot_id = "boot-2";
  scene.world.agent.start();
  CHECK(scene.want(staged()) == errc::ok);
  CHECK(scene.world.disk.records.front().boot_id == "boot-2");
}

TEST_CASE("an image below 1 MiB is refused before anything is done with it") {
  Scene scene;
  scene.image().size = (1 << 20) - 1;
  CHECK(scene.want(staged()) == errc::failed_precondition);
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a publish that fails for good leaves nothing that stands in another pod's way") {
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

TEST_CASE(
    "a device grows with its image on a live link, also when the image grew while nobody served it, and never "
    "shrinks") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.image().size = 2u << 30;
  scene.world.cluster.resized("id-1");
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 2u << 30);
  scene.world.agent.kill();
  scene.image().size = 3u << 30;
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 3u << 30);
  scene.image().size = 1u << 30;
  scene.world.cluster.resized("id-1");
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 3u << 30);
}
