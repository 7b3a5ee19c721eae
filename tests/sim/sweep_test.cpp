// Every story with every one of its outside calls failed, failed after its effect, or its agent killed before or after
// it: whoever wanted it repeats it, and gets it, and no rule of the world is broken on the way.
#include <functional>

#include "sweep.hpp"

using namespace corbd;
using plan::Wish;
using test::Blow;
using test::kId;
using test::Scene;

namespace {

struct Story {
  std::string name;
  std::vector<Wish> before;
  bool agent_died = false;  ///< in between
  Wish wish;
  std::function<void(const test::World&)> check;
  bool image_grows = false;  ///< in between
};

plan::Staged staged(bool block) {
  auto wish = test::staged_wish(kId);
  wish.capability.block = block;
  if (block) wish.capability.fstype.clear();
  return wish;
}

plan::Published published() {
  plan::Published wish;
  wish.path = staged(false).path;
  wish.target = "/kubelet/pods/p/volume";
  wish.capability = staged(false).capability;
  return wish;
}

/// What ceph-csi's unstage would go by.
void tells_ceph_csi(const test::World& world) {
  REQUIRE(world.disk.stashes.size() == 1);
  const auto& [path, stash] = *world.disk.stashes.begin();
  CHECK(path == staged(false).path);
  CHECK(stash.image == kId);
  CHECK(stash.nbd);
  CHECK_FALSE(stash.encrypted);
  CHECK(stash.device == device::path(world.kernel.devices.front().index));
}

void nothing_is_left(const test::World& world) {
  CHECK(world.disk.stashes.empty());
  CHECK(world.kernel.devices.empty());
  CHECK(world.kernel.mounts.empty());
  CHECK(world.disk.records.empty());
  CHECK(world.disk.keys.empty());
}

void is_served(const test::World& world) {
  REQUIRE(world.kernel.devices.size() == 1);
  CHECK(world.kernel.devices.front().alive);
  REQUIRE(world.disk.records.size() == 1);
}

void is_staged(const test::World& world) {
  is_served(world);
  REQUIRE(world.disk.records.front().stagings.size() == 1);
  CHECK(world.disk.records.front().stagings.front().complete);
  CHECK(world.kernel.mounts.size() == 1);
  tells_ceph_csi(world);
  CHECK(world.cluster.images.at(kId).generation <= 1);
}

constexpr std::uint64_t kGrown = 2u << 30;

void is_grown(const test::World& world) {
  is_staged(world);
  CHECK(world.kernel.devices.front().size == kGrown);
  CHECK(world.cluster.images.at(kId).filesystem_bytes == kGrown);
}

std::vector<Story> stories() {
  const Wish stage = staged(false), publish = published();
  return {
      {"a filesystem is staged", {}, false, stage, is_staged},
      {"a block device is staged", {}, false, staged(true), is_staged},
      {"it is published",
       {stage},
       false,
       publish,
       [](const auto& world) { CHECK(world.disk.records.front().publishes.size() == 1); }},
      {"it is unpublished", {stage, publish}, false, plan::Unpublished{published().target}, is_staged},
      {"it is unstaged", {stage}, false, plan::Unstaged{staged(false).path}, nothing_is_left},
      {"it is healed", {stage}, true, plan::Healed{}, is_staged},
      {"it is given up", {stage}, false, plan::GivenUp{}, is_served},
      {"it is expanded", {stage}, false, plan::Expanded{staged(false).path, kGrown}, is_grown, true},
      {"its free space is given back",
       {stage},
       false,
       plan::Trimmed{staged(false).path},
       [](const auto& world) {
         is_staged(world);
         CHECK(world.cluster.images.at(kId).trims > 0);
       }},
      {"it grows at its next stage", {stage, plan::Unstaged{staged(false).path}}, false, stage, is_staged, true},
      {"it is unstaged by the next agent", {stage}, true, plan::Unstaged{staged(false).path}, nothing_is_left},
      {"it is unstaged when it was given up",
       {stage, plan::GivenUp{}},
       false,
       plan::Unstaged{staged(false).path},
       nothing_is_left},
  };
}

/// Whether the blow fell.
bool tell(const Story& story, Blow blow, int at, errc code) {
  Scene scene;
  for (const auto& wish : story.before) REQUIRE(scene.world.agent.want(kId, wish));
  if (story.agent_died) scene.kill_and_start();
  if (story.image_grows) scene.image().size = kGrown;
  return test::survives(scene, story.name, story.wish, story.check, blow, at, code);
}

}  // namespace

TEST_CASE("every story ends well, whichever of its calls fails or kills the agent", "[failure:2]") {
  test::sweep(stories(), tell);
}
