// Time that jumps. docs/failures.md has the number of each story.
#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::Scene;
using namespace std::chrono_literals;

namespace {

/// A node with one volume and its healer.
struct Healing : Scene {
  Healing() {
    kill_and_start(true);
    REQUIRE(want(test::staged_wish(kId)) == errc::ok);
  }
  ~Healing() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
};

}  // namespace

TEST_CASE("a wall clock that jumps by years, forward or back, neither hurries nor holds up anything", "[failure:43]") {
  const auto jump =
      GENERATE(std::chrono::seconds(0), std::chrono::seconds(24h * 3650), std::chrono::seconds(-24h * 3650));
  Healing scene;
  scene.world.agent.kill();
  scene.world.cluster.dead = true;
  scene.world.agent.start(true);
  scene.loop.advance(1min);
  scene.loop.clock.wall_offset += jump;
  const int before = scene.world.calls.made;
  scene.loop.advance(5min);
  // One question at a time, at the pace of its backoff.
  CHECK(scene.world.calls.made - before < 10);
  scene.world.cluster.revive();
  scene.loop.clock.wall_offset -= 2 * jump;
  scene.loop.advance(2min);
  CHECK(scene.device().alive);
}

TEST_CASE("a lost volume is given up by the steady clock, whatever the wall clock shows", "[failure:43]") {
  Healing scene;
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = {plan::Attachment::State::away, "", "it was deleted"};
  scene.world.agent.kill();
  REQUIRE(scene.world.cluster.visit(scene.image(), "10.0.0.2:0/5", true));
  scene.world.agent.start(true);
  scene.loop.advance(10s);
  scene.loop.clock.wall_offset += 24h * 3650;
  scene.loop.advance(40s);
  CHECK(scene.world.agent.shell().status(kId)->health == volume::Health::lost);
  scene.loop.advance(3min);
  CHECK(scene.world.agent.shell().status(kId)->health == volume::Health::failed);
}
