// Which images are formatted, which formats are repeated, and which never.
#include "scene.hpp"

using namespace corbd;
using test::block_wish;
using test::kId;
using test::kPath;
using test::Scene;
using namespace std::chrono_literals;

TEST_CASE("an image with data and no filesystem is never formatted", "[rule:10]") {
  Scene scene;
  scene.world.cluster.images[kId].data = true;
  CHECK(scene.want(test::staged_wish(kId)) == errc::not_empty);
  CHECK(scene.world.cluster.images[kId].generation == 0);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a filesystem that is there is mounted, not made again") {
  Scene scene;
  scene.filled();
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.world.cluster.images[kId].generation == 0);
}

TEST_CASE("a format that did not end is not repeated after its image was a raw block volume") {
  Scene scene;
  scene.world.calls.crash_in = "mkfs";
  CHECK_THROWS_AS(scene.world.agent.want(kId, test::staged_wish(kId)), test::Crash);
  scene.kill_and_start();
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.want(block_wish()) == errc::ok);
  CHECK_FALSE(scene.image().metadata.contains("corbd/format"));
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1s);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.want(test::staged_wish(kId)) == errc::not_empty);
  CHECK(scene.image().generation == 0);
}

TEST_CASE(
    "a format that did not end is repeated by the record that began it, and by no other, unless the image is proven "
    "empty",
    "[rule:10]") {
  Scene scene;
  scene.world.calls.crash_in = "mkfs";
  CHECK_THROWS_AS(scene.world.agent.want(kId, test::staged_wish(kId)), test::Crash);
  REQUIRE(scene.image().metadata.contains("corbd/format"));
  scene.kill_and_start();
  SECTION("by the same record") {
    CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
    CHECK(scene.image().generation == 1);
  }
  SECTION("by the same record, which no error makes the orchestrator forget") {
    scene.world.calls.before_call = [&](const std::string& call) {
      if (call != "mkfs") return;
      scene.world.calls.before_call = nullptr;
      scene.world.calls.fail_at = 1;
      scene.world.calls.error = {errc::failed_precondition, "made to fail"};
    };
    CHECK(scene.want(test::staged_wish(kId)) == errc::unavailable);
    CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
    CHECK(scene.image().generation == 1);
  }
  SECTION("by no record after the image was used elsewhere") {
    scene.image().metadata.erase("corbd/format");
    scene.image().only_formatted = false;
    CHECK(scene.want(test::staged_wish(kId)) == errc::not_empty);
    CHECK(scene.world.disk.records.empty());
  }
  SECTION("by a later record") {
    REQUIRE(scene.want(plan::Unstaged{kPath}) == errc::ok);
    const bool empty = GENERATE(false, true);
    if (empty) scene.image().data = scene.image().only_formatted = false;
    CHECK(scene.want(test::staged_wish(kId)) == (empty ? errc::ok : errc::not_empty));
    CHECK(scene.image().generation == (empty ? 1u : 0u));
  }
  SECTION("by a record whose device is gone, so that another node may have come meanwhile") {
    scene.world.kernel.disconnect(scene.device().index);
    REQUIRE(scene.world.kernel.devices.empty());
    CHECK(scene.want(test::staged_wish(kId)) == errc::not_empty);
  }
}

TEST_CASE("mkfs assumes no zeros on an encrypted volume or after an interrupted format") {
  Scene scene;
  SECTION("encrypted") { CHECK(scene.want(test::encrypted_wish(kId)) == errc::ok); }
  SECTION("a format that is repeated") {
    scene.world.calls.crash_in = "mkfs";
    CHECK_THROWS_AS(scene.world.agent.want(kId, test::staged_wish(kId)), test::Crash);
    scene.kill_and_start();
    CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  }
  CHECK(scene.image().generation == 1);
}

TEST_CASE("a format whose client is cut off for another node writes nothing over what that one wrote") {
  Scene scene;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call != "mkfs") return;
    scene.world.calls.before_call = nullptr;
    scene.world.cluster.visit(scene.image(), "10.0.0.2:0/5", true);
  };
  CHECK(scene.want(test::staged_wish(kId)) != errc::ok);
  CHECK(scene.image().generation == 0);
  CHECK(scene.want(test::staged_wish(kId)) == errc::lost);
}

TEST_CASE("a device that rbd-nbd served is served again without the mark of a format that was begun before") {
  Scene scene;
  scene.world.calls.crash_in = "remove metadata";  // made and mounted
  REQUIRE_THROWS_AS(scene.want(test::staged_wish(kId)), test::Crash);
  scene.world.agent.kill();
  scene.world.ceph_csi.heals(0);
  scene.world.agent.start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.world.ceph_csi.daemons.contains(0));
  scene.world.ceph_csi.ends(0, false);
  scene.loop.advance(std::chrono::minutes(1));
  REQUIRE(scene.want(plan::Healed{true}) == errc::ok);
  REQUIRE(scene.device().alive);
  CHECK_FALSE(scene.image().metadata.contains("corbd/format"));
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(std::chrono::seconds(1));
  CHECK(scene.world.broken_rules.empty());
}

TEST_CASE("the mark of a format whose writing was waited for in vain does not come back after the format") {
  Scene scene;
  scene.world.calls.delayed = "set metadata";
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::unreachable);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.loop.advance(std::chrono::minutes(5));
  CHECK_FALSE(scene.image().metadata.contains("corbd/format"));
}

TEST_CASE("a partition table or an ambivalent device is neither mounted nor formatted") {
  Scene scene;
  scene.world.cluster.images[kId].content =
      GENERATE(host::Probe::Kind::partitions, host::Probe::Kind::ambivalent, host::Probe::Kind::other);
  CHECK(scene.want(test::staged_wish(kId)) == errc::failed_precondition);
  CHECK(scene.world.cluster.images[kId].generation == 0);
}
