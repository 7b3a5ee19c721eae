// Volumes that the kernel's own rbd client serves: mapped, used and unmapped by the agent, or taken over from ceph-csi.
#include <algorithm>

#include "blow.hpp"
#include "scene.hpp"

using namespace corbd;
using plan::Wish;
using test::Blow;
using test::kId;
using test::Scene;

namespace {

const std::string kStranger = "10.0.0.7:0/1";
const std::string kTarget = "/kubelet/pods/p/volume";
constexpr std::uint64_t kGrown = 2u << 30;

plan::Staged staged(bool block = false) {
  auto wish = test::staged_wish(kId);
  wish.mounter = cephcsi::Mounter::krbd;
  wish.capability.block = block;
  if (block) wish.capability.fstype.clear();
  return wish;
}

plan::Staged read_only() {
  auto wish = staged();
  wish.capability.read_only = true;
  return wish;
}

plan::Published published() {
  plan::Published wish;
  wish.path = staged().path;
  wish.target = kTarget;
  wish.capability = staged().capability;
  return wish;
}

plan::Unstaged unstaged() { return {staged().path}; }

void by_ceph_csi(Scene& scene) { scene.world.ceph_csi.stages_with_krbd(kId, staged().path, kId); }

std::string error_of(Scene& scene, const Wish& wish) {
  const auto done = scene.world.agent.want(kId, wish);
  return done ? "" : done.error().text;
}

void nothing_is_left(const test::World& world) {
  CHECK(world.kernel.devices.empty());
  CHECK(world.kernel.mounts.empty());
  CHECK(world.disk.records.empty());
  CHECK(world.disk.keys.empty());
  CHECK(world.disk.stashes.empty());
  CHECK(world.cluster.images.at(kId).watchers.empty());
}

void is_staged(const test::World& world) {
  REQUIRE(world.kernel.devices.size() == 1);
  CHECK(world.kernel.devices.front().kind == device::Kind::krbd);
  REQUIRE(world.disk.records.size() == 1);
  CHECK(world.disk.records.front().kind == device::Kind::krbd);
  CHECK(world.disk.records.front().device == world.kernel.devices.front().index);
  REQUIRE(world.disk.records.front().stagings.size() == 1);
  CHECK(world.disk.records.front().stagings.front().complete);
  CHECK(world.kernel.mounts.size() == 1);
  CHECK(world.cluster.opened.empty());
  CHECK(world.cluster.images.at(kId).generation <= 1);
  CHECK_FALSE(world.cluster.images.at(kId).metadata.contains("corbd/format"));
}

struct Story {
  std::string name;
  std::function<void(Scene&)> prepare;
  std::vector<Wish> before;
  Wish wish;
  std::function<void(const test::World&)> check;
};

void nothing(Scene&) {}
void fill(Scene& scene) { scene.filled(); }

std::vector<Story> stories() {
  const auto grow = [](Scene& scene) {
    scene.image().filesystem_bytes = scene.image().size;
    scene.image().size = scene.device().size = kGrown;
  };
  const auto is_grown = [](const test::World& world) {
    is_staged(world);
    CHECK(world.cluster.images.at(kId).filesystem_bytes == kGrown);
  };
  return {
      {"a new filesystem is staged", nothing, {}, staged(), is_staged},
      {"a filesystem that is there is staged", fill, {}, staged(), is_staged},
      {"a block device is staged", nothing, {}, staged(true), is_staged},
      {"a read-only filesystem is staged", fill, {}, read_only(), is_staged},
      {"it is published",
       nothing,
       {staged()},
       published(),
       [](const auto& world) { CHECK(world.disk.records.front().publishes.size() == 1); }},
      {"it is unpublished", nothing, {staged(), published()}, plan::Unpublished{kTarget}, is_staged},
      {"it is unstaged", nothing, {staged()}, unstaged(), nothing_is_left},
      {"a read-only one is unstaged", fill, {read_only()}, unstaged(), nothing_is_left},
      {"it is expanded", grow, {staged()}, plan::Expanded{staged().path, kGrown}, is_grown},
      {"what ceph-csi staged is staged", by_ceph_csi, {}, staged(), is_staged},
      {"what ceph-csi staged is unstaged", by_ceph_csi, {}, unstaged(), nothing_is_left},
      {"what ceph-csi staged and this agent staged again is unstaged",
       by_ceph_csi,
       {staged()},
       unstaged(),
       nothing_is_left},
  };
}

/// As kubelet does; the healer comes in between.
result<> insist(Scene& scene, const Wish& wish) {
  result<> done = Error{errc::internal, "never asked"};
  for (int tries = 0; tries < 5 && !done; ++tries) try {
      done = scene.world.agent.want(kId, wish);
    } catch (const test::Crash&) {
      scene.kill_and_start();
      CHECK(scene.world.agent.want(kId, Wish(plan::Healed{})));
    }
  return done;
}

/// Whether the blow fell.
bool tell(const Story& story, Blow blow, int at, errc code) {
  Scene scene;
  const bool after = !story.before.empty() && std::holds_alternative<plan::Expanded>(story.wish);
  if (!after) story.prepare(scene);
  for (const auto& wish : story.before) REQUIRE(scene.world.agent.want(kId, wish));
  if (after) story.prepare(scene);
  scene.world.calls.error = {code, "made to fail"};
  counter(scene.world, blow) = at;
  const auto done = insist(scene, story.wish);
  const bool fell = counter(scene.world, blow) == 0;
  INFO(story.name << ", blow " << static_cast<int>(blow) << " at call " << at
                  << (done ? "" : ": " + done.error().text));
  CHECK(done);
  story.check(scene.world);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  return fell;
}

}  // namespace

TEST_CASE("every story of a kernel's device ends well, whichever of its calls fails or kills the agent") {
  for (const auto& story : stories())
    for (const Blow blow : {Blow::crash_before, Blow::crash_after, Blow::fail, Blow::fail_after})
      for (const errc code : {errc::unavailable, errc::failed_precondition}) {
        int at = 1;
        while (tell(story, blow, at, code) && at < 200) ++at;
        INFO(story.name);
        CHECK(at > 1);
        CHECK(at < 200);
      }
}

TEST_CASE("a kernel's device is served on without the agent, and the next one finds it well") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.kill_and_start(true);
  scene.loop.advance(std::chrono::minutes(2));
  const auto status = *scene.world.agent.shell().status(kId);
  CHECK(status.health == volume::Health::staged);
  CHECK(status.kind == device::Kind::krbd);
  CHECK_FALSE(status.unserved);
  const int calls = scene.world.calls.made;
  CHECK(scene.want(staged()) == errc::ok);
  CHECK(scene.world.calls.made == calls);
}

TEST_CASE("a kernel's device is unstaged without a key and without the cluster") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.disk.keys.clear();
  scene.kill_and_start();
  scene.world.cluster.dead = true;
  CHECK(scene.want(unstaged()) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE(
    "an image with a feature that the kernel does not know goes to nbd where that is allowed, and is refused by its "
    "feature elsewhere") {
  Scene scene;
  scene.image().features |= 64;
  auto wish = staged();
  const auto refused = error_of(scene, wish);
  CHECK_THAT(refused, ContainsSubstring("journaling"));
  CHECK(scene.world.disk.records.empty());
  wish.mounter = cephcsi::Mounter::krbd_if_able;
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.device().kind == device::Kind::nbd);
}

TEST_CASE(
    "what ceph-csi staged with the kernel's client is told of before it is staged again, and is ours afterwards") {
  Scene scene;
  by_ceph_csi(scene);
  const auto left = scene.world.agent.shell().left_to_kernel();
  REQUIRE(left.size() == 1);
  CHECK(left.front().volume_id == kId);
  CHECK(left.front().device == scene.device().index);
  REQUIRE(scene.want(staged()) == errc::ok);
  CHECK(scene.world.agent.shell().left_to_kernel().empty());
}

TEST_CASE("a volume that is staged keeps what serves it, whoever is the default one when it is staged again") {
  using cephcsi::Mounter;
  const auto kind = GENERATE(device::Kind::nbd, device::Kind::krbd);
  const bool by_us = GENERATE(true, false);
  Scene scene;
  auto wish = staged();
  wish.mounter = kind == device::Kind::nbd ? Mounter::nbd : Mounter::krbd;
  if (by_us)
    REQUIRE(scene.want(wish) == errc::ok);
  else if (kind == device::Kind::krbd)
    by_ceph_csi(scene);
  else
    scene.world.ceph_csi.stages(kId, wish.path);
  const auto index = scene.device().index;
  scene.kill_and_start();
  wish.mounter = kind == device::Kind::nbd ? Mounter::krbd : Mounter::nbd;
  CHECK(scene.want(wish) == errc::ok);
  REQUIRE(scene.world.kernel.devices.size() == 1);
  CHECK(scene.device().kind == kind);
  CHECK(scene.device().index == index);
  CHECK(scene.world.disk.records.front().kind == kind);
  CHECK(scene.want(unstaged()) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("without the kernel's module a volume that wants it is refused, also if another mounter may try") {
  Scene scene;
  scene.world.kernel.rbd_module = false;
  auto wish = staged();
  wish.mounter = GENERATE(cephcsi::Mounter::krbd, cephcsi::Mounter::krbd_if_able);
  CHECK_THAT(error_of(scene, wish), ContainsSubstring("modprobe rbd"));
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE(
    "an image that another client has open is not mapped, and the refusal names the client and how long it has "
    "waited") {
  Scene scene;
  scene.image().watchers.insert(kStranger);
  CHECK(scene.want(staged()) == errc::in_use);
  scene.loop.advance(std::chrono::seconds(40));
  const auto refused = error_of(scene, staged());
  CHECK_THAT(refused, ContainsSubstring(kStranger));
  CHECK_THAT(refused, ContainsSubstring("40 s"));
  CHECK(scene.world.kernel.devices.empty());
  scene.image().watchers.clear();
  CHECK(scene.want(staged()) == errc::ok);
}

TEST_CASE("of two nodes that map an image at once, one that sees the other unmaps it before anything is written") {
  Scene scene;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "map krbd") scene.image().watchers.insert(kStranger);
  };
  CHECK(scene.want(staged()) == errc::in_use);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.image().generation == 0);
  CHECK(scene.image().watchers == std::set<std::string>{kStranger});
}

TEST_CASE("a volume in use is not unmapped because another client has opened its image") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.image().watchers.insert(kStranger);
  auto elsewhere = staged();
  elsewhere.path += "-2";
  static_cast<void>(scene.world.agent.want(kId, elsewhere));
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("a raw block volume that many nodes write is mapped beside them") {
  Scene scene;
  scene.image().shared = true;
  scene.image().watchers.insert(kStranger);
  auto wish = staged(true);
  wish.capability.shared = true;
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.device().kind == device::Kind::krbd);
}

TEST_CASE("the lock of a client that died is broken by the kernel, which has it cut off first") {
  Scene scene;
  scene.filled();
  scene.image().lock_owner = kStranger;
  CHECK(scene.want(staged()) == errc::ok);
  CHECK(scene.world.cluster.blocklisted.contains(kStranger));
}

TEST_CASE("after a reboot the volume is staged again once the old kernel's watch is gone") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.reboot();
  scene.world.agent.start();
  CHECK(scene.want(staged()) == errc::in_use);
  scene.loop.advance(std::chrono::seconds(40));
  CHECK(scene.want(staged()) == errc::ok);
}

TEST_CASE("after a reboot, and when somebody unmapped it, a kernel's device is absent, not staged") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  const auto health = [&] { return scene.world.agent.shell().status(kId)->health; };
  if (GENERATE(false, true)) {
    scene.world.reboot();
    scene.world.agent.start();
  } else {
    scene.world.kernel.devices.clear();
    CHECK(scene.want(plan::Healed{}) == errc::ok);
  }
  CHECK(health() == volume::Health::absent);
}

TEST_CASE("a kernel's device is not without a server because the agent was") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.kill_and_start();
  CHECK_FALSE(scene.world.agent.shell().status(kId)->unserved_since);
}

TEST_CASE("what ceph-csi staged after a reboot is taken over, although a record of the boot before is left") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.reboot();
  scene.loop.advance(std::chrono::seconds(40));
  by_ceph_csi(scene);
  scene.world.agent.start();
  CHECK(scene.want(Wish(plan::Healed{})) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(staged()) == errc::ok);
  is_staged(scene.world);
}

TEST_CASE("an image that was made again under its name is not mapped for the old one") {
  Scene scene;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "map krbd") scene.image().id = "id-2";
  };
  CHECK(scene.want(staged()) == errc::not_found);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a mapping that somebody made by hand is left alone") {
  Scene scene;
  static_cast<void>(scene.world.kernel.krbd_maps(kId, false));
  CHECK(scene.want(staged()) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a map that outlasts its caller is waited for, not repeated") {
  Scene scene;
  scene.world.calls.delayed = "map krbd";
  CHECK(scene.want(staged()) != errc::ok);
  CHECK(scene.want(staged()) != errc::ok);
  scene.loop.advance(std::chrono::seconds(60));
  CHECK(scene.want(staged()) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("two volumes on one image are not both given to the kernel, which could not tell their devices apart") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(read_only()) == errc::ok);
  auto other = read_only();
  other.path += "-2";
  CHECK(scene.want(other, "image-2") == errc::in_use);
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("a kernel's device is not given up") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  CHECK(scene.want(Wish(plan::Failed{})) == errc::failed_precondition);
  CHECK_FALSE(scene.world.disk.records.front().failed);
}

TEST_CASE("an expansion of a kernel's device waits until the kernel has seen it") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  CHECK(scene.want(plan::Expanded{staged().path, kGrown}) == errc::unavailable);
}

TEST_CASE("the volume's options and the node's place go to the kernel") {
  Scene scene;
  auto wish = staged();
  wish.source.kernel.map = "queue_depth=64";
  scene.world.disk.crush_location = "host:a|zone:b";
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(scene.world.kernel.rbd_options == "queue_depth=64,read_from_replica=localize,crush_location=host:a|zone:b");
}

TEST_CASE("the node's place goes to librbd") {
  Scene scene;
  scene.world.disk.crush_location = "host:a|zone:b";
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.world.cluster.options_asked ==
        std::set<std::string>{"crush_location=host=a zone=b", "rbd_read_from_replica_policy=localize"});
}

TEST_CASE("a volume that ceph-csi staged with the kernel's client is published, looked at and grown after one stage") {
  Scene scene;
  by_ceph_csi(scene);
  scene.world.kernel.mounts.push_back(scene.world.kernel.mounts.front());
  scene.world.kernel.mounts.back().target = kTarget;
  REQUIRE(scene.want(staged()) == errc::ok);
  CHECK_FALSE(scene.world.disk.records.front().adopting);
  CHECK(scene.world.disk.records.front().publishes.front().target == kTarget);
  CHECK(scene.world.cluster.blocklisted.empty());
  CHECK(scene.loop.run(scene.world.agent.shell().usage(kId, staged().path, {})));
  scene.image().filesystem_bytes = scene.image().size;
  scene.image().size = scene.device().size = kGrown;
  CHECK(scene.want(plan::Expanded{staged().path, kGrown}) == errc::ok);
  CHECK(scene.image().filesystem_bytes == kGrown);
  CHECK(scene.want(unstaged()) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(plan::Unpublished{kTarget}) == errc::ok);
  CHECK(scene.want(unstaged()) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("what ceph-csi staged encrypted, or of another image, does not become ours by a stage that says otherwise") {
  Scene scene;
  by_ceph_csi(scene);
  auto& stash = scene.world.disk.stashes.at(staged().path);
  if (GENERATE(true, false))
    stash.encrypted = true;
  else
    stash.image = "image-2";
  CHECK(scene.want(staged()) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("a format that the kernel's device was in is repeated only while its lock stayed the kernel's") {
  Scene scene;
  scene.world.calls.crash_in = "mkfs";
  CHECK_THROWS_AS(scene.world.agent.want(kId, staged()), test::Crash);
  scene.kill_and_start();
  const int what = GENERATE(range(0, 5));
  CAPTURE(what);
  if (what == 1) scene.image().changed();  // the lock went to another client and came back
  if (what == 2) scene.image().lock_owner = kStranger;
  if (what == 3) scene.world.disk.records.front().format_version.reset();  // an earlier version's
  if (what == 4) scene.image().data = scene.image().only_formatted = false;
  if (what == 4) scene.image().changed();
  scene.kill_and_start();
  const bool repeated = what == 0 || what == 4;
  CHECK(scene.want(staged()) == (repeated ? errc::ok : errc::not_empty));
  CHECK(scene.image().generation == (repeated ? 1u : 0u));
}

TEST_CASE("without the exclusive lock a format by the kernel's client is not repeated unless the image is empty") {
  Scene scene;
  scene.image().exclusive = false;
  scene.world.calls.crash_in = "mkfs";
  CHECK_THROWS_AS(scene.world.agent.want(kId, staged()), test::Crash);
  scene.kill_and_start();
  CHECK(scene.want(staged()) == errc::not_empty);
  CHECK(scene.image().generation == 0);
}
