// Every story of a volume that the kernel's client serves, with each of its calls failed or its agent killed.
#include <functional>

#include "blow.hpp"
#include "krbd.hpp"

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

/// As kubelet does; the healer comes in between.
result<> insist(Scene& scene, const Wish& wish) {
  result<> done = Error{errc::internal, "never asked"};
  for (int tries = 0; tries < 5 && !done; ++tries) try {
      done = scene.world.agent.want(kId, wish);
    } catch (const Crash&) {
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
