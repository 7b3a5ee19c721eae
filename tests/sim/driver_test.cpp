// Commands to the kernel's driver that outlive whoever waited for them.
#include "scene.hpp"

using namespace corbd;
using test::kUnstaged;
using namespace std::chrono_literals;
using test::kId;
using test::Scene;

namespace {

/// Its disconnect waits in the kernel for 90 s, longer than the unstage for it.
void unstage_late(Scene& scene) {
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.calls.delayed = "disconnect";
  REQUIRE(scene.want(kUnstaged) == errc::timed_out);
}

}  // namespace

TEST_CASE("a volume is not staged on a device whose disconnect is still under way, and is on a new one afterwards") {
  Scene scene;
  unstage_late(scene);
  const auto refused = scene.world.agent.want(kId, test::staged_wish(kId));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unavailable);
  CHECK(refused.error().text.find("disconnect of volume image-1 is under way in the kernel since 20") !=
        std::string::npos);
  CHECK(scene.world.kernel.mounts.empty());
  scene.loop.advance(60s);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.device().alive);
  CHECK(scene.world.kernel.mounts.size() == 1);
}

TEST_CASE("a disconnect that ended after its caller had left is known, also while somebody has the device open") {
  Scene scene;
  unstage_late(scene);
  scene.world.kernel.open_device(0);
  scene.loop.advance(60s);
  REQUIRE(scene.device().disconnected);
  int calls = 0;
  scene.world.calls.before_call = [&](const std::string& call) {
    calls += call == "disconnect" || call == "kernel reconfigure" ? 1 : 0;
  };
  CHECK(scene.want(test::staged_wish(kId)) == errc::unavailable);
  CHECK(scene.world.agent.shell().status(kId)->health == volume::Health::absent);
  CHECK(scene.want(kUnstaged) == errc::unavailable);
  CHECK(calls == 0);
  scene.world.kernel.close_device(0);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.device().alive);
}

TEST_CASE(
    "an agent that dies while its disconnect waits in the kernel leaves a device that the next one gets right, whether "
    "or not it happened") {
  Scene scene;
  test::Calm calm;
  const bool happens = GENERATE(true, false);
  const bool open = GENERATE(true, false);
  unstage_late(scene);
  if (open) scene.world.kernel.open_device(0);
  if (happens) scene.world.hazards = &calm;
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
  REQUIRE((scene.world.kernel.devices.empty() || scene.device().disconnected) == happens);
  scene.world.agent.start();
  if (happens && open) {
    CHECK(scene.want(test::staged_wish(kId)) == errc::unavailable);
    scene.world.kernel.close_device(0);
  }
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.device().alive);
  if (open) scene.world.kernel.close_device(0);
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a connect and a reconnect that end after their callers had left are taken as they are") {
  Scene scene;
  scene.filled();
  const bool heals = GENERATE(true, false);
  if (heals) {
    REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
    scene.kill_and_start();
    scene.world.calls.delayed = "kernel reconfigure";
    CHECK(scene.want(plan::Healed{}) == errc::timed_out);
  } else {
    scene.world.calls.delayed = "kernel connect";
    CHECK(scene.want(test::staged_wish(kId)) == errc::timed_out);
  }
  CHECK(scene.want(test::staged_wish(kId)) == errc::unavailable);
  scene.loop.advance(60s);
  int commands = 0;
  scene.world.calls.before_call = [&](const std::string& call) { commands += call == "kernel connect" ? 1 : 0; };
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(commands == 0);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.device().alive);
}

TEST_CASE("a growth that waited for its turn among the kernel's commands is asked for again, not sent late") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  const auto before = scene.device().size;
  scene.image().size = 2 * before;
  scene.world.calls.delayed = "kernel resize";
  scene.world.cluster.resized(scene.image().id);
  CHECK(scene.want(plan::Healed{}) == errc::timed_out);
  scene.loop.advance(60s);
  CHECK(scene.device().size == before);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.device().size == 2 * before);
}

TEST_CASE("an agent that is told to leave waits for the command under way, and serves its device meanwhile") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.image().size *= 2;
  scene.world.calls.delayed = "kernel resize";
  scene.world.cluster.resized(scene.image().id);
  REQUIRE(scene.want(plan::Healed{}) == errc::timed_out);
  REQUIRE(scene.world.calls.under_way.size() == 1);
  bool served = false;
  scene.loop.outside_in(10s, [&] { scene.world.kernel.application_writes(scene.device(), 0); });
  scene.loop.outside_in(11s, [&] { served = scene.world.kernel.answered == 1; });
  scene.world.agent.stop();
  CHECK(served);
}

TEST_CASE("a stall lasts until a request that waited is answered, not until the device has a server again") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  const bool waits = GENERATE(true, false);
  scene.world.cluster.dead = true;
  if (waits) scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1s);
  scene.world.cluster.dead = false;
  scene.kill_and_start();
  scene.loop.advance(5s);
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  // The kernel sends what was in flight again when its timer has fired.
  const auto at_reconnect = scene.world.agent.shell().status(kId)->longest_stall;
  scene.loop.advance(5s);
  const auto in_the_end = scene.world.agent.shell().status(kId)->longest_stall;
  if (waits)
    CHECK(in_the_end >= 5s + 1s);
  else
    CHECK((at_reconnect == in_the_end && in_the_end >= 5s && in_the_end < 6s));
}
