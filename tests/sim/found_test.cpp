// What the simulator found, each as the shortest story that shows it.
#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::Scene;

TEST_CASE("a volume whose client is cut off between its open image and its session is opened anew") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.kill_agent();
  scene.world.start_agent();
  scene.world.fail_at = 3;  // after fence and open: the look at its owner
  REQUIRE(scene.want(volume::Healed{}) == errc::unreachable);
  scene.world.blocklist(scene.world.client());
  CHECK(scene.want(volume::Healed{}) == errc::fenced);
  CHECK(scene.want(volume::Healed{}) == errc::ok);
  CHECK(scene.world.devices.front().alive);
}
