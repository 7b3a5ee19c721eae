// Another client's persistent cache has an image's newest writes: the feature dirty-cache (rule 1).
#include "dead.hpp"

using namespace corbd;
using test::Scene;

namespace {

constexpr auto kDirty = test::FakeImage::kDirtyCache;

}  // namespace

TEST_CASE("an image whose newest writes lie in another client's cache is staged neither to write nor to read",
          "[failure:190]") {
  Scene scene;
  scene.filled();
  scene.image().features |= kDirty;
  auto wish = test::staged();
  wish.capability.read_only = GENERATE(true, false);
  wish.mounter = GENERATE(plan::Mounter::nbd, plan::Mounter::krbd, plan::Mounter::krbd_if_able);
  scene.world.kernel.rbd_features = ~0ull;
  CHECK(scene.want(wish) == errc::unsafe_config);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.image().watchers.empty());
  scene.image().features &= ~kDirty;
  CHECK(scene.want(wish) == errc::ok);
}

TEST_CASE("nobody is fenced, and no lock is broken, for an image whose newest writes lie in that client's cache",
          "[failure:190]") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.world.cluster.visit(scene.image(), test::kOther, false));
  scene.world.cluster.leave(scene.image(), test::kOther, false);
  scene.image().features |= kDirty;
  CHECK(scene.want(test::staged()) == errc::unsafe_config);
  CHECK(scene.image().lock_owner == test::kOther);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(test::kOther));
}

TEST_CASE("a client whose cache has an image's newest writes is cut off by hand only if its writes are given up",
          "[failure:190]") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.world.cluster.visit(scene.image(), test::kOther, false));
  scene.image().features |= kDirty;
  volume::ImageAt at{.volume_id = "", .cluster_id = "lab"};
  at.name = {scene.world.cluster.pools.at(scene.image().pool_id), "", test::kId};
  at.user = "node";
  at.key = test::staged().credential.key;
  auto& shell = scene.world.agent.shell();
  CHECK(scene.loop.run(shell.holders(at, {}))->dirty_cache);
  const auto refused = scene.loop.run(shell.take_image(at, {}));
  CHECK(refused.error().code == errc::unsafe_config);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(test::kOther));
  at.also_dirty = true;
  CHECK(scene.loop.run(shell.take_image(at, {})));
  CHECK(scene.world.cluster.blocklisted.contains(test::kOther));
}

TEST_CASE("a device waits as long as its image's newest writes lie in another client's cache", "[failure:190]") {
  test::Dead scene;
  scene.image().features |= kDirty;
  scene.start(test::kHere);
  scene.loop.advance(std::chrono::minutes(2));
  CHECK_FALSE(scene.device().alive);
  CHECK(scene.want(plan::Healed{true}) == errc::unsafe_config);
  CHECK_FALSE(scene.watched());
  scene.image().features &= ~kDirty;
  scene.loop.advance(std::chrono::minutes(5));
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE("a living rbd-nbd with a persistent cache is asked to end, which stores its cache, and is then followed") {
  Scene scene;
  scene.filled();
  scene.world.ceph_csi.stages(test::kId, test::kPath);
  scene.image().features |= kDirty;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  CHECK(scene.want(plan::Adopted{}) == errc::ok);
  CHECK(scene.world.ceph_csi.daemons.empty());
  CHECK(scene.device().alive);
}

TEST_CASE("an rbd-nbd that died with a persistent cache is not followed before its cache is stored", "[failure:190]") {
  Scene scene;
  scene.filled();
  const auto device = scene.world.ceph_csi.stages(test::kId, test::kPath);
  REQUIRE(scene.want(test::staged()) == errc::ok);
  const std::string client = scene.image().lock_owner;
  scene.image().features |= kDirty;
  scene.world.ceph_csi.ends(device, false);
  scene.loop.advance(std::chrono::minutes(1));
  CHECK(scene.want(plan::Healed{}) == errc::unsafe_config);
  CHECK_FALSE(scene.device().alive);
  CHECK(scene.image().lock_owner == client);
  scene.image().features &= ~kDirty;
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}
