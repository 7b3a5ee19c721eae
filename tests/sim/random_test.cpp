// Long random lives of a node: wishes, deaths and failures in any order. A failing seed is replayed with
//   sim "random lives*" -c "seed N"      (the section's name)
#include <random>

#include "support/catch.hpp"
#include "support/world/world.hpp"

using namespace corbd;
using plan::Wish;
using test::World;

namespace {

Wish random_wish(std::mt19937& random, const std::string& id) {
  const auto staged = test::staged_wish(id);
  plan::Published published;
  published.path = staged.path;
  published.target = "/kubelet/pods/" + std::to_string(random() % 2) + "/" + id;
  published.capability = staged.capability;
  switch (random() % 5) {
    case 0:
      return staged;
    case 1:
      return published;
    case 2:
      return plan::Unpublished{published.target};
    case 3:
      return plan::Unstaged{staged.path};
    default:
      return plan::Healed{};
  }
}

void live(World& world, std::mt19937& random, int days) {
  for (int day = 0; day < days; ++day) {
    const std::string id = "image-" + std::to_string(random() % 2);
    if (random() % 3 == 0) world.calls.crash_at = static_cast<int>(random() % 12) + 1;
    if (random() % 4 == 0) {
      world.calls.fail_at = static_cast<int>(random() % 12) + 1;
      world.calls.error = {random() % 2 == 0 ? errc::unavailable : errc::failed_precondition, "made to fail"};
    }
    try {
      static_cast<void>(world.agent.want(id, random_wish(random, id)));
    } catch (const test::Crash&) {
      world.agent.kill();
      world.agent.start();
    }
    world.calls.crash_at = world.calls.fail_at = 0;
  }
}

}  // namespace

TEST_CASE("random lives break no rule, and afterwards everything can be taken down", "[rule:I8]") {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    DYNAMIC_SECTION("seed " << seed) {
      test::Loop loop;
      World world(loop);
      for (const char* name : {"image-0", "image-1"}) world.cluster.images[name].id = std::string("id-of-") + name;
      world.agent.start();
      std::mt19937 random(seed);
      live(world, random, 40);
      for (const std::string id : {"image-0", "image-1"}) {
        for (const char* pod : {"0", "1"})
          CHECK(world.agent.want(id, Wish(plan::Unpublished{"/kubelet/pods/" + std::string(pod) + "/" + id})));
        const auto down = world.agent.want(id, Wish(plan::Unstaged{test::staged_wish(id).path}));
        INFO((down ? "" : down.error().text));
        CHECK(down);
        CHECK(world.cluster.images[id].generation <= 1);
      }
      CHECK(world.kernel.devices.empty());
      CHECK(world.disk.records.empty());
      for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
    }
  }
}
