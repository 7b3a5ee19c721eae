// Every story of a volume that the kernel's client serves, with each of its calls failed or its agent killed.
#include <functional>

#include "krbd.hpp"
#include "sweep.hpp"

using namespace corbd;
using namespace corbd::test;
using plan::Wish;

namespace {

void nothing_is_left(const World& world) {
  CHECK(world.kernel.devices.empty());
  CHECK(world.kernel.mounts.empty());
  CHECK(world.disk.records.empty());
  CHECK(world.disk.keys.empty());
  CHECK(world.disk.stashes.empty());
  CHECK(world.cluster.images.at(kId).watchers.empty());
}

struct Story {
  std::string name;
  std::function<void(Scene&)> prepare;
  std::vector<Wish> before;
  Wish wish;
  std::function<void(const World&)> check;
};

void nothing(Scene&) {}
void fill(Scene& scene) { scene.filled(); }

std::vector<Story> stories() {
  const auto grow = [](Scene& scene) {
    scene.image().filesystem_bytes = scene.image().size;
    scene.image().size = scene.device().size = kGrown;
  };
  const auto is_grown = [](const World& world) {
    is_staged(world);
    CHECK(world.cluster.images.at(kId).filesystem_bytes == kGrown);
  };
  return {
      {"a new filesystem is staged", nothing, {}, krbd_staged(), is_staged},
      {"a filesystem that is there is staged", fill, {}, krbd_staged(), is_staged},
      {"a block device is staged", nothing, {}, krbd_staged(true), is_staged},
      {"a read-only filesystem is staged", fill, {}, read_only(), is_staged},
      {"it is published",
       nothing,
       {krbd_staged()},
       published(),
       [](const auto& world) { CHECK(world.disk.records.front().publishes.size() == 1); }},
      {"it is unpublished", nothing, {krbd_staged(), published()}, plan::Unpublished{kTarget}, is_staged},
      {"it is unstaged", nothing, {krbd_staged()}, unstaged(), nothing_is_left},
      {"a read-only one is unstaged", fill, {read_only()}, unstaged(), nothing_is_left},
      {"it is expanded", grow, {krbd_staged()}, plan::Expanded{krbd_staged().path, kGrown}, is_grown},
      {"what ceph-csi staged is staged", by_ceph_csi, {}, krbd_staged(), is_staged},
      {"what ceph-csi staged is unstaged", by_ceph_csi, {}, unstaged(), nothing_is_left},
      {"what ceph-csi staged and this agent staged again is unstaged",
       by_ceph_csi,
       {krbd_staged()},
       unstaged(),
       nothing_is_left},
  };
}

/// Whether the blow fell.
bool tell(const Story& story, Blow blow, int at, errc code) {
  Scene scene;
  const bool after = !story.before.empty() && std::holds_alternative<plan::Expanded>(story.wish);
  if (!after) story.prepare(scene);
  for (const auto& wish : story.before) REQUIRE(scene.world.agent.want(kId, wish));
  if (after) story.prepare(scene);
  return survives(scene, story.name, story.wish, story.check, blow, at, code);
}

}  // namespace

TEST_CASE("every story of a kernel's device ends well, whichever of its calls fails or kills the agent",
          "[failure:112]") {
  sweep(stories(), tell);
}
