// What is told of the space that raw block volumes use: counted in the background, and never waited for.
#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::kPath;
using test::Scene;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kMiB = 1 << 20, kSize = 1 << 30;

struct Counting : Scene {
  explicit Counting(bool block = true) {
    image().counts_used = true;
    image().used = 8 * kMiB;
    world.calls.before_call = [this](const std::string& call) { counts += call == "used bytes" ? 1 : 0; };
    REQUIRE(want(block ? test::block_wish() : test::staged()) == errc::ok);
  }
  host::Usage usage() {
    const auto told = loop.run(world.agent.shell().usage(kId, kPath, {}));
    REQUIRE(told);
    return *told;
  }
  /// Asks, and asks again once the count has ended.
  host::Usage counted() {
    usage();
    loop.advance(1s);
    return usage();
  }
  std::optional<volume::UsedBytes> used() { return world.agent.shell().status(kId)->used; }
  int counts = 0;
};

}  // namespace

TEST_CASE("the first statistics of a raw block volume have only its size, and the next ones what its image uses") {
  Counting scene;
  const auto first = scene.usage();
  CHECK(first.bytes == kSize);
  CHECK((first.bytes_used == 0 && first.bytes_available == 0));
  scene.loop.advance(1s);
  const auto next = scene.usage();
  CHECK(next.bytes_used == 8 * kMiB);
  CHECK(next.bytes_available == kSize - 8 * kMiB);
  CHECK(scene.used()->bytes == 8 * kMiB);
}

TEST_CASE("what an image uses is counted at most once a minute, and only if somebody asks") {
  Counting scene;
  scene.loop.advance(5min);
  CHECK(scene.counts == 0);
  for (int i = 0; i < 10; ++i) scene.usage();
  scene.loop.advance(59s);
  scene.usage();
  CHECK(scene.counts == 1);
  scene.image().used = 4 * kMiB;
  scene.loop.advance(2s);
  CHECK(scene.counted().bytes_used == 4 * kMiB);
  CHECK(scene.counts == 2);
}

TEST_CASE("a filesystem's image is not counted, by its statistics or by a look at all volumes") {
  Counting scene(false);
  scene.counted();
  scene.world.agent.shell().count_used();
  scene.loop.advance(1s);
  CHECK(scene.counts == 0);
  CHECK_FALSE(scene.used());
}

TEST_CASE("a look at all volumes counts what the images of raw block volumes use") {
  Counting scene;
  scene.world.agent.shell().count_used();
  scene.loop.advance(1s);
  CHECK(scene.used()->bytes == 8 * kMiB);
}

TEST_CASE("a count that does not end delays no statistics, and the last count is told for ten minutes") {
  Counting scene;
  REQUIRE(scene.counted().bytes_used == 8 * kMiB);
  const auto since = scene.loop.clock.now();
  scene.image().used = kMiB;
  for (int minutes = 0; minutes < 9; ++minutes) {
    scene.world.calls.delayed = "used bytes";
    const auto before = scene.loop.clock.now();
    scene.loop.advance(1min);
    CHECK(scene.usage().bytes_used == 8 * kMiB);
    CHECK(scene.loop.clock.now() - before == 1min);
  }
  scene.world.calls.delayed = "used bytes";
  scene.loop.advance(70s);
  CHECK(scene.usage().bytes_used == 0);
  CHECK_FALSE(volume::used_now(*scene.world.agent.shell().status(kId), since + 11min));
}

TEST_CASE("an image whose object map turned invalid loses its count") {
  Counting scene;
  REQUIRE(scene.counted().bytes_used == 8 * kMiB);
  scene.image().used.reset();
  scene.loop.advance(1min);
  CHECK(scene.counted().bytes_used == 0);
  CHECK_FALSE(scene.used());
}

TEST_CASE("an image that uses more than its device has leaves nothing available") {
  Counting scene;
  scene.image().used = kSize + kMiB;
  const auto told = scene.counted();
  CHECK((told.bytes_used == kSize && told.bytes_available == 0));
}

TEST_CASE("a volume without a server, or whose client was cut off, is not counted") {
  Counting scene;
  if (GENERATE(true, false)) {
    scene.kill_and_start();
  } else {
    scene.world.cluster.blocklist(scene.world.agent.client());
    scene.write_all();
    scene.loop.advance(5s);
    REQUIRE(scene.world.agent.shell().status(kId)->access_lost);
  }
  scene.world.agent.shell().count_used();
  scene.loop.advance(1s);
  CHECK(scene.counts == 0);
}

TEST_CASE("a count that hangs delays neither the unstage nor the agent's end") {
  Counting scene;
  scene.world.calls.delayed = "used bytes";
  scene.usage();
  const auto before = scene.loop.clock.now();
  if (GENERATE(true, false))
    CHECK(scene.want(test::kUnstaged) == errc::ok);
  else
    scene.loop.run(scene.world.agent.shell().stop({before + 2s}));
  CHECK(scene.loop.clock.now() - before < 1s);
}

TEST_CASE("images are counted one at a time, and one that hangs loses its turn after ten seconds") {
  Counting scene;
  auto& other = scene.world.cluster.images["image-2"];
  other.id = "id-2";
  other.counts_used = true;
  other.used = 3 * kMiB;
  auto wish = test::block_wish();
  wish.path = test::staged_wish("image-2").path;
  wish.source = test::staged_wish("image-2").source;
  wish.credential = test::staged_wish("image-2").credential;
  REQUIRE(scene.want(wish, "image-2") == errc::ok);
  scene.world.calls.delayed = "used bytes";
  scene.world.agent.shell().count_used();
  scene.loop.advance(9s);
  CHECK(scene.counts == 1);
  scene.loop.advance(2s);
  CHECK(scene.world.agent.shell().status("image-2")->used->bytes == 3 * kMiB);
}
