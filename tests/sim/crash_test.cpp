// The agent dies before every single port call of every operation, starts again, heals and repeats: the world must
// converge and no rule of the world may be broken on the way.
#include "support/catch.hpp"
#include "support/world/world.hpp"

using namespace corbd;
using plan::Wish;
using test::World;

namespace {

const std::string kId = "image-1";

struct Scene {
  test::Loop loop;
  World world{loop};

  explicit Scene(bool exclusive = true) {
    world.cluster.images[kId].id = "id-1";
    world.cluster.images[kId].exclusive = exclusive;
    world.agent.start();
  }
  plan::Staged staged(bool block) const {
    auto wish = test::staged_wish(kId);
    if (block) {
      wish.capability.block = true;
      wish.capability.fstype.clear();
    }
    return wish;
  }
  plan::Published published(bool block) const {
    plan::Published wish;
    wish.path = staged(block).path;
    wish.target = "/kubelet/pods/p/volume";
    wish.capability = staged(block).capability;
    return wish;
  }
  bool mounted(const std::string& target) const {
    for (const auto& mount : world.kernel.mounts)
      if (mount.target == target) return true;
    return false;
  }
  /// The wish; if the agent dies in it: the next agent heals and the caller repeats.
  result<> insist(const Wish& wish) {
    for (int tries = 0; tries < 5; ++tries) {
      try {
        return world.agent.want(kId, wish);
      } catch (const test::Crash&) {
        world.agent.kill();
        world.agent.start();
        const auto healed = world.agent.want(kId, Wish(plan::Healed{}));
        INFO((healed ? "" : healed.error().text));
        CHECK(healed);
      }
    }
    return Error{errc::internal, "it did not converge"};
  }
  void check_rules() const {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
};

/// Runs `story` with a crash before its 1st, 2nd, ... port call until it gets through without one.
template <class Story>
int sweep(bool exclusive, Story story) {
  int at = 0;
  for (bool crashed = true; crashed;) {
    Scene scene(exclusive);
    crashed = story(scene, ++at);
    INFO("the agent died before call " << at);
    scene.check_rules();
    REQUIRE(at < 200);
  }
  return at;
}

}  // namespace

TEST_CASE("a stage survives the agent's death before every step, for a filesystem and for a block volume",
          "[failure:2]") {
  const bool block = GENERATE(false, true);
  const int steps = sweep(true, [&](Scene& scene, int at) {
    scene.world.calls.crash_at = at;
    const auto staged = scene.insist(Wish(scene.staged(block)));
    INFO((staged ? "" : staged.error().text));
    CHECK(staged);
    CHECK(scene.mounted(plan::staging_target(kId, scene.staged(block).path)));
    CHECK(scene.world.kernel.devices.size() == 1);
    CHECK(scene.world.kernel.devices.front().alive);
    CHECK(scene.world.cluster.images[kId].generation == (block ? 0u : 1u));
    CHECK_FALSE(scene.world.cluster.images[kId].metadata.contains("corbd/format"));
    return scene.world.calls.crash_at == 0;
  });
  CHECK(steps > 8);
}

TEST_CASE("publish, unpublish and unstage survive the agent's death before every step", "[failure:3]") {
  const bool block = GENERATE(false, true);
  sweep(true, [&](Scene& scene, int at) {
    REQUIRE(scene.world.agent.want(kId, Wish(scene.staged(block))));
    scene.world.calls.crash_at = at;
    const auto wish = scene.published(block);
    CHECK(scene.insist(Wish(wish)));
    CHECK(scene.mounted(wish.target));
    const auto unpublished = scene.insist(Wish(plan::Unpublished{wish.target}));
    INFO((unpublished ? "" : unpublished.error().text));
    CHECK(unpublished);
    CHECK_FALSE(scene.mounted(wish.target));
    const auto unstaged = scene.insist(Wish(plan::Unstaged{wish.path}));
    INFO((unstaged ? "" : unstaged.error().text));
    CHECK(unstaged);
    CHECK(scene.world.kernel.devices.empty());
    CHECK(scene.world.kernel.mounts.empty());
    CHECK(scene.world.disk.records.empty());
    CHECK(scene.world.disk.keys.empty());
    return scene.world.calls.crash_at == 0;
  });
}

TEST_CASE("a read-only stage of a damaged filesystem, and its end, survive the agent's death before every step",
          "[failure:47]") {
  sweep(true, [&](Scene& scene, int at) {
    auto& image = scene.world.cluster.images[kId];
    REQUIRE(scene.world.agent.want(kId, Wish(scene.staged(false))));
    REQUIRE(scene.world.agent.want(kId, Wish(plan::Unstaged{scene.staged(false).path})));
    image.beyond_repair = true;
    auto wish = scene.staged(false);
    wish.source.on_damage = plan::OnDamage::read_only;
    scene.world.calls.crash_at = at;
    CHECK(scene.insist(Wish(wish)));
    CHECK(scene.mounted(plan::staging_target(kId, wish.path)));
    REQUIRE(scene.world.kernel.devices.size() == 1);
    CHECK(scene.world.kernel.takes_no_write(scene.world.kernel.devices.front()));
    CHECK(scene.insist(Wish(plan::Unstaged{wish.path})));
    CHECK(scene.world.kernel.devices.empty());
    CHECK(scene.world.kernel.read_only_numbers.empty());
    return scene.world.calls.crash_at == 0;
  });
}

TEST_CASE("a heal survives the agent's death before every step of it", "[failure:42]") {
  sweep(true, [&](Scene& scene, int at) {
    REQUIRE(scene.world.agent.want(kId, Wish(scene.staged(false))));
    scene.world.agent.kill();
    scene.world.agent.start();
    scene.world.calls.crash_at = at;
    CHECK(scene.insist(Wish(plan::Healed{})));
    CHECK(scene.world.kernel.devices.front().alive);
    CHECK(scene.world.cluster.images[kId].lock_owner == scene.world.agent.client());
    return scene.world.calls.crash_at == 0;
  });
}

TEST_CASE(
    "a stage whose calls may all fail, with any code, with or without effect, undoes itself before a final code, and a "
    "repeat succeeds",
    "[rule:12][rule:I3]") {
  const auto code = static_cast<errc>(GENERATE(range(1, static_cast<int>(errc_last) + 1)));
  const bool after = GENERATE(false, true);
  sweep(true, [&](Scene& scene, int at) {
    int& counter = after ? scene.world.calls.fail_after_at : scene.world.calls.fail_at;
    counter = at;
    scene.world.calls.error = {code, "made to fail"};
    const auto staged = scene.world.agent.want(kId, Wish(scene.staged(false)));
    const bool failed = counter == 0;
    INFO(name(code) << (staged ? "" : ": " + staged.error().text));
    if (failed && !staged && final_for_caller(staged.error().code)) {
      CHECK(scene.world.kernel.devices.empty());
      CHECK(scene.world.kernel.mounts.empty());
      CHECK(scene.world.disk.records.empty());
      CHECK(scene.world.disk.keys.empty());
      CHECK(scene.world.disk.stashes.empty());
    }
    const auto again = scene.world.agent.want(kId, Wish(scene.staged(false)));
    INFO((again ? "" : again.error().text));
    CHECK(again);
    return failed;
  });
}
