// An agent that dies, whose links a keeper has.
#include "scene.hpp"
#include "support/world/ports.hpp"

using namespace corbd;
using test::Scene;
using namespace std::chrono_literals;

namespace {

/// Dies with requests under way, and again before call number `at` of the healing. Whether that came.
bool survives_second_death(int at, const plan::Staged& wish) {
  Scene scene;
  scene.world.agent.keeper = true;
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.cluster.slow = 20ms;
  scene.write_all();
  scene.loop.advance(1ms);
  REQUIRE(scene.waiting() > 0);
  scene.kill_and_start();
  scene.write_all();
  scene.world.calls.crash_at = at;
  bool died = false;
  try {
    static_cast<void>(scene.world.agent.want(test::kId, plan::Wish(plan::Healed{})));
  } catch (const test::Crash&) {
    died = true;
    scene.kill_and_start();
  }
  scene.world.calls.crash_at = 0;
  INFO("the next agent died before call " << at);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.loop.advance(1s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.kernel.deaths == 0);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  return died;
}

}  // namespace

TEST_CASE("under a keeper, the death of an agent or its successor before any call ends no link and loses no write",
          "[failure:152]") {
  const bool block = GENERATE(false, true);
  int at = 1;
  while (survives_second_death(at, block ? test::block_wish() : test::staged()) && at < 200) ++at;
  CHECK(at > 4);
  CHECK(at < 200);
}

TEST_CASE("an agent fences its dead predecessor before it resumes a kept link", "[failure:152]") {
  Scene scene;
  scene.world.agent.keeper = true;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.kill_and_start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.cluster.blocklisted.size() == 1);
  CHECK(scene.world.kernel.deaths == 0);
}

TEST_CASE("a kept link of a volume that another node took meanwhile is not resumed", "[failure:152]") {
  Scene scene;
  scene.world.agent.keeper = true;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.write_all();
  scene.loop.advance(10ms);
  scene.world.agent.kill();
  CHECK(scene.world.cluster.visit(scene.image(), "10.0.0.2:0/5", true));
  scene.world.cluster.leave(scene.image(), "10.0.0.2:0/5", true);
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) != errc::ok);
  scene.write_all();
  scene.loop.advance(1s);
  CHECK(scene.waiting() == test::kBlocks);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("an agent that dies with its keeper, or whose keeper dies before the next one starts, leaves a dead link") {
  const bool together = GENERATE(true, false);
  Scene scene;
  scene.world.agent.keeper = true;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.write_all();
  scene.world.agent.kill(together);
  if (!together) scene.world.agent.keeper_dies();
  CHECK(scene.world.kernel.deaths == 1);
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.loop.advance(3s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a kept link that no agent resumes within a minute is seen dead") {
  Scene scene;
  scene.world.agent.keeper = true;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.kill_and_start();
  scene.loop.advance(59s);
  CHECK(scene.world.kernel.deaths == 0);
  scene.loop.advance(2s);
  CHECK(scene.world.kernel.deaths == 1);
}

TEST_CASE(
    "an agent that dies every four seconds for two minutes, and then a good one: writes go on, and ten clients at most "
    "are blocklisted",
    "[failure:163]") {
  Scene scene;
  scene.world.agent.keeper = true;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  int deaths = 0;
  for (const auto begin = scene.loop.clock.now(); scene.loop.clock.now() < begin + 2min; ++deaths) {
    scene.write_all();
    scene.loop.advance(4s);
    CHECK(scene.waiting() == 0);
    const auto pause = scene.world.agent.die();
    REQUIRE(pause);
    scene.write_all();
    scene.loop.advance(*pause);
    scene.world.agent.start();
    REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  }
  scene.loop.advance(4s);
  CHECK(scene.waiting() == 0);
  CHECK(deaths > 4);
  CHECK(scene.world.cluster.blocklisted.size() <= 10);
  CHECK(scene.world.kernel.errors == 0);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("agents that die before they open an image for writing leave no client to fence", "[failure:163][rule:I5]") {
  Scene scene;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  for (int deaths = 0; deaths < 5; ++deaths) scene.kill_and_start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.cluster.blocklisted.size() == 1);
}
