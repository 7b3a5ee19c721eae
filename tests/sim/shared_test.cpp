// Images that other nodes use, used, or mirror.
#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::Scene;

namespace {

const std::string kSharer = "10.0.0.2:0/5";

plan::Staged shared_wish() {
  auto wish = test::staged_wish(kId);
  wish.capability = {};
  wish.capability.block = wish.capability.shared = true;
  return wish;
}

/// Another node writes it too.
struct Shared : Scene {
  Shared() {
    world.hazards = &calm;
    image().shared = true;
    world.cluster.visit(image(), kSharer, false);
  }
  ~Shared() {
    if (world.agent.running()) world.agent.kill();
    world.hazards = nullptr;
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  test::Calm calm;
};

}  // namespace

TEST_CASE("a shared volume is staged beside the client of another node, and takes no lock for good") {
  Shared scene;
  REQUIRE(scene.want(shared_wish()) == errc::ok);
  CHECK(scene.image().lock_owner == kSharer);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(kSharer));
}

TEST_CASE("a dead client's lock on a shared image is broken only after an own entry of seven days", "[failure:195]") {
  Shared scene;
  scene.image().watchers.erase(kSharer);  // it froze, and still has writes under way
  auto wish = shared_wish();
  wish.mounter = GENERATE(plan::Mounter::nbd, plan::Mounter::krbd);
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(scene.image().lock_owner != kSharer);
  REQUIRE(scene.world.cluster.blocklisted.contains(kSharer));
  scene.world.cluster.entries_age(std::chrono::hours(2));
  CHECK(scene.world.cluster.has_entry(kSharer));
}

TEST_CASE("a volume for one node is not staged beside the client of another node", "[failure:106]") {
  Scene scene;
  scene.world.cluster.visit(scene.image(), kSharer, false);
  auto alone = shared_wish();
  alone.capability.shared = false;
  CHECK(scene.want(alone) == errc::in_use);
}

TEST_CASE(
    "a shared volume is served again after a crash although another node wrote meanwhile, and its dead client is "
    "fenced") {
  Shared scene;
  REQUIRE(scene.want(shared_wish()) == errc::ok);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(std::chrono::seconds(1));
  const auto before = scene.image().lock_owner;
  REQUIRE(before != kSharer);
  scene.world.agent.kill();
  scene.world.cluster.visit(scene.image(), kSharer, false);
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.device().alive);
  CHECK(scene.world.cluster.blocklisted.contains(before));
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(kSharer));
}

TEST_CASE("the mirror of another cluster's image is not staged, neither to write nor to read", "[failure:108]") {
  Scene scene;
  scene.image().secondary = true;
  auto wish = test::staged_wish(kId);
  CHECK(scene.want(wish) == errc::failed_precondition);
  wish.capability.read_only = true;
  CHECK(scene.want(wish) == errc::failed_precondition);
  CHECK(scene.world.disk.records.empty());
  scene.image().secondary = false;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("an image whose node died is taken from it once its watch is gone, and its client is fenced first",
          "[failure:107]") {
  Scene scene;
  scene.filled();
  scene.world.cluster.visit(scene.image(), kSharer, false);
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(kSharer));
  scene.world.cluster.leave(scene.image(), kSharer, false);
  REQUIRE(scene.image().lock_owner == kSharer);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.world.cluster.blocklisted.contains(kSharer));
  CHECK(scene.image().generation == 0);
}

TEST_CASE("a device that exists is not served again over a lock of another client, watched or not") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.agent.kill();
  REQUIRE(scene.world.cluster.visit(scene.image(), kSharer, true));
  scene.world.cluster.leave(scene.image(), kSharer, false);
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK_FALSE(scene.device().alive);
}
