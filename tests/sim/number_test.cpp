// A device's number has had other owners, and keeps something of what they did.
#include "encrypted.hpp"
#include "krbd.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

/// rbd-nbd mapped something read-only on the first numbers, which are free again.
void left_read_only(World& world) { world.kernel.read_only_numbers = {0, 1}; }

void takes_writes_now(Scene& scene) {
  scene.write_all();
  scene.loop.advance(std::chrono::seconds(5));
  CHECK(scene.world.kernel.answered > 0);
  CHECK(scene.world.kernel.errors == 0);
}

}  // namespace

TEST_CASE("a writable volume takes writes on a number that an earlier user left read-only", "[failure:241]") {
  enum { empty, filled, block, encrypted };
  const auto what = GENERATE(empty, filled, block, encrypted);
  CAPTURE(what);
  Encrypted scene;
  left_read_only(scene.world);
  auto wish = what == encrypted ? scene.wish : staged();
  if (what == filled) scene.filled();
  if (what == block) wish = block_wish();
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(scene.device().index == 0);
  takes_writes_now(scene);
}

TEST_CASE("a number that was left read-only takes writes although the agent died between connecting and tuning it",
          "[failure:241]") {
  Scene scene;
  left_read_only(scene.world);
  scene.world.calls.crash_in = "tune";
  CHECK_THROWS_AS(scene.want(block_wish()), Crash);
  // The number's timer is this agent's already.
  scene.device().io_timeout_ms = 1000;
  scene.kill_and_start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  REQUIRE(scene.want(block_wish()) == errc::ok);
  takes_writes_now(scene);
}

TEST_CASE("a read-only volume's device takes no write, although rbd-nbd connected it writable", "[failure:241]") {
  Scene scene;
  scene.filled();
  auto wish = staged();
  wish.capability.read_only = true;
  const bool by_us = GENERATE(true, false);
  if (!by_us) {
    const auto index = scene.world.ceph_csi.stages(kId, wish.path);
    REQUIRE(scene.want(wish) == errc::ok);
    scene.world.ceph_csi.ends(index, true);
    scene.loop.advance(std::chrono::seconds(40));
    REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  }
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(scene.world.kernel.takes_no_write(scene.device()));
}

TEST_CASE("a number that was a read-only volume's is a writable volume's next", "[failure:241]") {
  Scene scene;
  scene.filled();
  auto wish = staged();
  wish.capability.read_only = true;
  REQUIRE(scene.want(wish) == errc::ok);
  REQUIRE(scene.want(kUnstaged) == errc::ok);
  REQUIRE(scene.want(staged()) == errc::ok);
  takes_writes_now(scene);
}

TEST_CASE("a writable volume is not staged on a kernel's device that is read-only, and the refusal names the command",
          "[failure:241]") {
  Scene scene;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "ownership" && !scene.world.kernel.devices.empty())
      scene.world.kernel.read_only_numbers.insert(scene.device().index);
  };
  auto wish = krbd_staged();
  const auto first = scene.world.agent.want(kId, wish);
  REQUIRE_FALSE(first);
  CHECK(first.error().code == errc::failed_precondition);
  CHECK_THAT(first.error().text, ContainsSubstring("blockdev --setrw /dev/rbd100"));
  scene.world.calls.before_call = {};
  scene.world.kernel.read_only_numbers.clear();
  CHECK(scene.want(wish) == errc::ok);
}

TEST_CASE("a staged volume leaves the node although the driver itself holds its device read-only") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.device().read_only = true;  // as rbd-nbd connects it, which no flag of the number changes
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}
