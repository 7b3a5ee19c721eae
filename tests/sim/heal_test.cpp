// Whom a device is served again for, and whom not (rule 2a).
#include "support/catch.hpp"
#include "support/world.hpp"

using namespace corbd;
using plan::Wish;
using test::World;

namespace {

const std::string kId = "image-1";

void stage_and_kill(World& world, bool exclusive) {
  world.images[kId].id = "id-1";
  world.images[kId].exclusive = exclusive;
  world.start_agent();
  REQUIRE(world.want(kId, Wish(test::staged_wish(kId))));
  world.kill_agent();
}

errc heal(World& world) {
  world.start_agent();
  const auto healed = world.want(kId, Wish(plan::Healed{}));
  for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  return healed ? errc::ok : healed.error().code;
}

}  // namespace

TEST_CASE("a device whose image our dead client still has locked is served again") {
  test::Loop loop;
  World world(loop);
  stage_and_kill(world, true);
  CHECK(heal(world) == errc::ok);
  CHECK(world.devices.front().alive);
}

TEST_CASE("a free lock proves nothing: the device waits") {
  test::Loop loop;
  World world(loop);
  stage_and_kill(world, true);
  world.images[kId].lock_owner.clear();
  CHECK(heal(world) == errc::unproven);
  CHECK_FALSE(world.devices.front().alive);
}

TEST_CASE(
    "a start that died between breaking our dead lock and taking it is no loss, unless somebody changed the image "
    "since") {
  test::Loop loop;
  World world(loop);
  stage_and_kill(world, true);
  auto& image = world.images[kId];
  world.start_agent();
  world.crash_in = "acquire lock";
  CHECK_THROWS_AS(world.want(kId, Wish(plan::Healed{})), test::Crash);
  world.kill_agent();
  REQUIRE(image.lock_owner.empty());
  const bool another_came = GENERATE(false, true);
  if (another_came) image.changed();  // took the lock, and gave it back
  CHECK(heal(world) == (another_came ? errc::unproven : errc::ok));
  CHECK(world.devices.front().alive != another_came);
}

TEST_CASE("an image without exclusive-lock waits unproven until the operator gives his word") {
  test::Loop loop;
  World world(loop);
  stage_and_kill(world, false);
  CHECK(heal(world) == errc::unproven);
  CHECK(world.want(kId, Wish(plan::Healed{true})));
}

TEST_CASE("the operator's word does not reach over a client that has the image open") {
  test::Loop loop;
  World world(loop);
  stage_and_kill(world, false);
  world.images[kId].watchers.insert("10.0.0.2:0/5");
  CHECK(heal(world) == errc::unproven);
  CHECK(world.want(kId, Wish(plan::Healed{true})).error().code == errc::unproven);
  CHECK_FALSE(world.devices.front().alive);
}

TEST_CASE("an image made again under the same name is lost, not served") {
  test::Loop loop;
  World world(loop);
  stage_and_kill(world, true);
  world.images[kId] = test::FakeImage();
  world.images[kId].id = "id-2";
  CHECK(heal(world) == errc::lost);
  CHECK_FALSE(world.devices.front().alive);
}

TEST_CASE("after a reboot nothing is healed and the record is closed") {
  test::Loop loop;
  World world(loop);
  stage_and_kill(world, true);
  world.devices.clear();
  world.mounts.clear();
  world.keys.clear();
  world.boot_id = "boot-2";
  CHECK(heal(world) == errc::ok);
  CHECK(world.records.empty());
}

TEST_CASE("a volume that answers is healed without a call to the cluster") {
  test::Loop loop;
  World world(loop);
  stage_and_kill(world, true);
  CHECK(heal(world) == errc::ok);
  world.calls = 0;
  CHECK(world.want(kId, Wish(plan::Healed{})));
  CHECK(world.want(kId, Wish(test::staged_wish(kId))));
  CHECK(world.calls == 0);
}
