// Encrypted volumes that the kernel's own RBD client serves: its devices carry no volume ID.
#include "encrypted.hpp"
#include "krbd.hpp"
#include "sweep.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

struct EncryptedKrbd : Encrypted {
  EncryptedKrbd() { wish.mounter = cephcsi::Mounter::krbd; }
  void by_ceph_csi() {
    const auto index = world.ceph_csi.stages_with_krbd(kId, wish.path, kId);
    if (wish.capability.block) {
      auto& mount = world.kernel.mounts.front();
      mount.fstype = "devtmpfs";
      mount.root = "/rbd" + std::to_string(index);
      mount.dev_major = 0;
    }
    world.ceph_csi.opens_luks(index, wish.path, kId, "canary-passphrase");
  }
  std::string refusal(const plan::Wish& wanted) {
    const auto done = world.agent.want(kId, wanted);
    return done ? "" : done.error().text;
  }
};

void is_open(const World& world) {
  is_staged(world);
  CHECK(world.kernel.devices.front().mapping);
  CHECK(shows_device(world.kernel.mounts.front(), world.kernel.devices.front().index));
}

void all_is_gone(const World& world) {
  CHECK(world.kernel.devices.empty());
  CHECK(world.kernel.mounts.empty());
  CHECK(world.disk.records.empty());
  CHECK(world.disk.stashes.empty());
  CHECK(world.cluster.images.at(kId).watchers.empty());
}

struct Story {
  std::string name;
  std::function<void(EncryptedKrbd&)> prepare;
  std::function<plan::Wish(EncryptedKrbd&)> wish;
  std::function<void(const World&)> check;
};

bool tell(const Story& story, Blow blow, int at, errc code) {
  EncryptedKrbd scene;
  story.prepare(scene);
  return survives(scene, story.name, story.wish(scene), story.check, blow, at, code);
}

plan::Wish its_stage(EncryptedKrbd& scene) { return scene.wish; }
plan::Wish its_unstage(EncryptedKrbd& scene) { return plan::Unstaged{scene.wish.path}; }

}  // namespace

TEST_CASE("the first stage of an encrypted kernel's volume opens its header once, and its unstage closes all",
          "[failure:240]") {
  EncryptedKrbd scene;
  if (GENERATE(false, true)) scene.as_block();
  int opened = 0;
  scene.world.calls.before_call = [&](const std::string& call) { opened += call == "luks open"; };
  REQUIRE(scene.stage() == errc::ok);
  is_open(scene.world);
  REQUIRE(scene.want(published(scene.wish, kTarget)) == errc::ok);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  const int calls = scene.world.calls.made;
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.world.calls.made == calls);
  CHECK(opened == 1);
  REQUIRE(scene.want(plan::Unpublished{kTarget}) == errc::ok);
  CHECK(scene.unstage() == errc::ok);
  all_is_gone(scene.world);
}

TEST_CASE("an encrypted volume that ceph-csi staged with the kernel's client is adopted as it is, with its pods",
          "[failure:240]") {
  EncryptedKrbd scene;
  if (GENERATE(false, true)) scene.as_block();
  scene.by_ceph_csi();
  scene.world.kernel.mounts.push_back(scene.world.kernel.mounts.front());
  scene.world.kernel.mounts.back().target = kTarget;
  const auto left = scene.world.agent.shell().left_to_kernel();
  REQUIRE(left.size() == 1);
  CHECK(left.front().volume_id == kId);
  scene.world.calls.before_call = [&](const std::string& call) { CHECK_FALSE(call.starts_with("luks")); };
  REQUIRE(scene.stage() == errc::ok);
  scene.world.calls.before_call = {};
  REQUIRE(scene.world.disk.records.size() == 1);
  CHECK(scene.world.disk.records.front().device.kind == device::Kind::krbd);
  CHECK(scene.world.disk.records.front().publishes.front().target == kTarget);
  CHECK(scene.world.agent.shell().left_to_kernel().empty());
  CHECK(scene.unstage() == errc::failed_precondition);
  CHECK(scene.want(plan::Unpublished{kTarget}) == errc::ok);
  CHECK(scene.unstage() == errc::ok);
  all_is_gone(scene.world);
}

TEST_CASE("an encrypted volume that ceph-csi staged with the kernel's client is unstaged without a record",
          "[failure:240]") {
  EncryptedKrbd scene;
  if (GENERATE(false, true)) scene.as_block();
  scene.by_ceph_csi();
  CHECK(scene.unstage() == errc::ok);
  all_is_gone(scene.world);
}

TEST_CASE("after a reboot an encrypted kernel's volume is opened again") {
  EncryptedKrbd scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.world.reboot();
  scene.loop.advance(std::chrono::seconds(40));
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  REQUIRE(scene.stage() == errc::ok);
  is_open(scene.world);
  CHECK(scene.image().generation == 1);
}

TEST_CASE("an expansion of an encrypted kernel's volume fills its mapping, whoever staged it") {
  EncryptedKrbd scene;
  if (GENERATE(false, true)) scene.by_ceph_csi();
  REQUIRE(scene.stage() == errc::ok);
  scene.image().size = scene.device().size = kGrown;
  CHECK(scene.want(plan::Expanded{scene.wish.path, kGrown}) == errc::ok);
  CHECK(scene.device().mapping == kGrown - kLuksHeader);
  CHECK(scene.image().filesystem_bytes == kGrown - kLuksHeader);
  const auto usage = scene.loop.run(scene.world.agent.shell().usage(kId, scene.wish.path, {}));
  CHECK(usage);
}

TEST_CASE("the key of an encrypted kernel's volume is not rotated, and its refusal says so of an open volume") {
  EncryptedKrbd scene;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.want(plan::Rekeyed{}) == errc::unimplemented);
}

TEST_CASE("a mapping of somebody else above a kernel's device is not closed, and the refusal names it",
          "[failure:240][failure:244]") {
  EncryptedKrbd scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.device().map_as("vg-data", *scene.device().mapping, false);
  scene.world.kernel.mounts.clear();
  const auto refused = scene.refusal(plan::Unstaged{scene.wish.path});
  CHECK_THAT(refused, ContainsSubstring("vg-data"));
  CHECK(scene.device().mapping);
}

TEST_CASE("every story of an encrypted kernel's volume ends well, whichever of its calls fails or kills the agent",
          "[failure:240]") {
  const auto nothing = [](EncryptedKrbd&) {};
  const auto staged_before = [](EncryptedKrbd& scene) { REQUIRE(scene.stage() == errc::ok); };
  const auto by_ceph_csi = [](EncryptedKrbd& scene) { scene.by_ceph_csi(); };
  const std::vector<Story> stories{
      {"it is staged", nothing, its_stage, is_open},
      {"it is unstaged", staged_before, its_unstage, all_is_gone},
      {"what ceph-csi staged is staged", by_ceph_csi, its_stage, is_open},
      {"what ceph-csi staged is unstaged", by_ceph_csi, its_unstage, all_is_gone},
  };
  sweep(stories, tell);
}
