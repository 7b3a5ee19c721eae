// Stages and unstages that end half way: what the next call makes of what they left.
#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::Scene;

TEST_CASE("a stage after an unstage whose record was written and whose write failed is durable") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.calls.fail_after_at = 2;  // after the umount: the record without the staging
  scene.world.calls.error = {errc::state_write, "fsync failed"};
  REQUIRE(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::state_write);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.world.disk.records.size() == 1);
  CHECK(scene.world.disk.records.front().stagings.size() == 1);
}

TEST_CASE("a stage whose device goes while its record is written again is served by another one") {
  Scene scene;
  auto wish = test::staged_wish(kId);
  wish.capability.block = true;
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.disk.state = test::Disk::State::full;
  REQUIRE(scene.want(plan::Published{wish.path, "/pods/1", false, wish.capability}) == errc::state_write);
  scene.world.disk.state = test::Disk::State::good;
  bool disconnected = false;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "save record" && !std::exchange(disconnected, true)) scene.world.kernel.disconnect(0);
  };
  CHECK(scene.want(wish) == errc::ok);
  CHECK(disconnected);
  REQUIRE(scene.world.kernel.devices.size() == 1);
  CHECK(scene.world.kernel.is_served(scene.world.kernel.devices.front()));
}

TEST_CASE("an unstage leaves neither key nor record of a stage that the agent did not survive") {
  Scene scene;
  scene.world.calls.error = {errc::state_write, "fsync failed"};
  const bool dies = GENERATE(true, false);
  if (dies) {
    scene.world.calls.crash_in = "save record";
    REQUIRE_THROWS_AS(scene.want(test::staged_wish(kId)), test::Crash);
    scene.world.agent.kill();
    scene.world.agent.start();
  } else {
    scene.world.calls.fail_after_at = 3;  // resolve, the key, the record
    REQUIRE(scene.want(test::staged_wish(kId)) == errc::state_write);
  }
  REQUIRE_FALSE(scene.world.disk.keys.empty());
  CHECK(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::ok);
  CHECK(scene.world.disk.keys.empty());
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a volume whose image did not close in time is staged again on an image that is open") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.calls.fail_after_at =
      5;  // umount, record, look, disconnect: the close goes on when the wait for it ended
  scene.world.calls.error = {errc::timed_out, "made to last"};
  REQUIRE(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::unreachable);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.image().lock_owner == scene.world.agent.client());
}

TEST_CASE("a device that the kernel makes after its stage was given up is taken down by the unstage") {
  Scene scene;
  scene.world.calls.delayed = "kernel connect";  // for longer than a step waits
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::timed_out);
  CHECK(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::unavailable);
  scene.loop.advance(std::chrono::minutes(2));
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a stage that fails before it has a device releases its image until it is repeated") {
  Scene scene;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "kernel connect") scene.world.calls.fail_at = 1;
  };
  scene.world.calls.error = {errc::exhausted, "no device is free"};
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::exhausted);
  CHECK(scene.image().watchers.empty());
  CHECK(scene.image().lock_owner.empty());
  scene.world.calls.before_call = nullptr;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("a stage whose device was made although its command failed keeps the server of that device") {
  Scene scene;
  scene.filled();
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "kernel connect") scene.world.calls.fail_after_at = 1;
  };
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::unavailable);
  CHECK(scene.device().alive);
  CHECK(scene.image().lock_owner == scene.world.agent.client());
  scene.world.calls.before_call = nullptr;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("a volume that is staged again while its given-up image still closes waits for the lock of that one") {
  test::Calm calm;
  Scene scene;
  scene.world.hazards = &calm;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  // A request that takes a minute: its image is closed after it.
  scene.world.cluster.slow = std::chrono::minutes(1);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.cluster.slow = {};
  REQUIRE(scene.want(plan::GivenUp{}) == errc::ok);
  REQUIRE(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::ok);
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
  scene.loop.advance(std::chrono::minutes(2));
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.loop.advance(std::chrono::minutes(2));
  CHECK(scene.image().lock_owner == scene.world.agent.client());
  scene.world.hazards = nullptr;
}
