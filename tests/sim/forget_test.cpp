// What the agent remembers of volumes that are gone.
#include <malloc.h>

#include "scene.hpp"

using namespace corbd;
using test::Scene;

namespace {

/// Bytes of the heap for each of `count` volumes, after some that fill what is kept for reuse.
template <class Life>
double growth(int count, Life life) {
  for (int i = 0; i < 100; ++i) life("warm-" + std::to_string(i));
  const auto used = [] { return static_cast<double>(mallinfo2().uordblks); };
  const double before = used();
  for (int i = 0; i < count; ++i) life("csi-vol-" + std::to_string(i));
  return (used() - before) / count;
}

}  // namespace

TEST_CASE("an unstaged volume leaves nothing in memory") {
  Scene scene;
  const double bytes = growth(1000, [&](const std::string& id) {
    scene.world.cluster.images[id].id = "id-" + id;
    const auto wish = test::staged_wish(id);
    REQUIRE(scene.want(wish, id) == errc::ok);
    REQUIRE(scene.want(plan::Unstaged{wish.path}, id) == errc::ok);
    scene.world.cluster.images.erase(id);
    scene.world.disk.keys.erase(id);
    scene.world.disk.stashes.clear();
  });
  CHECK(bytes < 200);
}

TEST_CASE("a volume whose stage failed, or that was only looked up, leaves nothing in memory") {
  Scene scene;
  const double bytes = growth(1000, [&](const std::string& id) {
    REQUIRE(scene.want(test::staged_wish(id), id) == errc::not_found);
    REQUIRE(scene.want(plan::Healed{}, id) == errc::ok);
    REQUIRE(scene.want(plan::Unstaged{"/kubelet/staging/" + id}, id) == errc::ok);
  });
  CHECK(bytes < 200);
}
