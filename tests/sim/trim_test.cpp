// The scheduled trim of a node's filesystems.
#include "scene.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

const std::string kSecond = "image-2";

struct Scheduled : Scene {
  explicit Scheduled(std::chrono::seconds every = 24h) {
    world.agent.kill();
    world.trim_every = every;
    world.agent.start(true);
  }
  void stage(plan::Staged wish = staged()) { REQUIRE(want(std::move(wish)) == errc::ok); }
  volume::Status status() { return *world.agent.shell().status(kId); }
  std::uint64_t pieces() { return image().size / kTrimmedBytes; }
  FakeImage& other() { return world.cluster.images[kSecond]; }
  void stage_both() {
    other().id = "id-2";
    stage();
    REQUIRE(want(staged_wish(kSecond), kSecond) == errc::ok);
  }
  /// Lets time go on until the agent asks for a piece.
  void until_a_piece() {
    bool asked = false;
    world.calls.before_call = [&](const std::string& call) { asked = asked || call == "trim_from"; };
    for (int seconds = 0; !asked && seconds < 100'000; ++seconds) loop.advance(1s);
    world.calls.before_call = nullptr;
    REQUIRE(asked);
  }
  /// The first piece ends in 90 s only.
  void until_a_piece_hangs() {
    world.calls.delayed = "trim_from";
    until_a_piece();
  }
  void check_rules() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
};

}  // namespace

TEST_CASE("each filesystem is trimmed to its end once in a period, in pieces, and its figures say so") {
  Scheduled scene;
  scene.stage();
  scene.loop.advance(25h);
  CHECK(scene.image().trims == static_cast<int>(scene.pieces()));
  CHECK(scene.status().counts.trimmed_bytes == scene.pieces() * kTrimmedBytes);
  CHECK(scene.status().counts.trimmed_at);
  CHECK(scene.status().why_not_trimmed.empty());
  scene.loop.advance(24h);
  CHECK(scene.image().trims == 2 * static_cast<int>(scene.pieces()));
  scene.check_rules();
}

TEST_CASE("nothing is trimmed by itself without --trim-every") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.loop.advance(10 * 24h);
  CHECK(scene.image().trims == 0);
}

TEST_CASE("the agent's start trims nothing, however often it starts") {
  Scheduled scene;
  scene.stage();
  scene.loop.advance(25h);
  const int before = scene.image().trims;
  for (int i = 0; i < 10; ++i) {
    scene.kill_and_start(true);
    scene.loop.advance(5min);
  }
  CHECK(scene.image().trims <= before + static_cast<int>(scene.pieces()));
  scene.check_rules();
}

TEST_CASE("a raw block volume and a read-only one are not trimmed, and their status says why") {
  Scheduled scene;
  auto wish = staged();
  if (GENERATE(false, true)) {
    wish = block_wish();
  } else {
    scene.filled();
    wish.capability.read_only = true;
  }
  scene.stage(wish);
  scene.loop.advance(48h);
  CHECK(scene.image().trims == 0);
  CHECK_FALSE(scene.status().why_not_trimmed.empty());
  CHECK_FALSE(scene.status().last_error);
  scene.check_rules();
}

TEST_CASE("a caller's trim takes the place of the scheduled one") {
  Scheduled scene;
  scene.stage();
  for (int hour = 0; hour < 72; ++hour) {
    CHECK(scene.want(plan::Trimmed{kPath}) == errc::ok);
    scene.loop.advance(1h);
  }
  CHECK(scene.image().trims == 72);
  scene.check_rules();
}

TEST_CASE("a trim that cannot discard leaves no error on the volume") {
  Scheduled scene;
  auto wish = encrypted_wish(kId);
  REQUIRE(scene.want(wish) == errc::ok);
  scene.loop.advance(49h);
  CHECK(scene.image().trims == 0);
  CHECK_FALSE(scene.status().last_error);
  CHECK(scene.status().health == volume::Health::staged);
  CHECK_THAT(scene.status().why_not_trimmed, ContainsSubstring("encryptionDiscard"));
  scene.check_rules();
}

TEST_CASE("a busy volume is not trimmed until it is idle") {
  Scheduled scene;
  scene.stage();
  scene.world.cluster.dead = true;
  scene.write_all();
  scene.loop.advance(30h);
  CHECK(scene.image().trims == 0);
  scene.world.cluster.revive();
  scene.loop.advance(30h);
  CHECK(scene.image().trims > 0);
}

TEST_CASE("an unstage that comes while a volume is trimmed waits for one piece, and the trim ends") {
  Scheduled scene;
  scene.stage();
  scene.until_a_piece();
  const auto since = scene.loop.clock.now();
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.loop.clock.now() - since < 5s);
  const int pieces = scene.image().trims;
  scene.loop.advance(30h);
  CHECK(scene.image().trims == pieces);
  scene.check_rules();
}

TEST_CASE("a volume is handed over while it is trimmed, and nobody notices") {
  Scheduled scene;
  scene.stage();
  scene.until_a_piece();
  scene.write_all();
  scene.world.agent.hand_over(true);
  scene.loop.advance(1min);
  CHECK(scene.world.cluster.blocklisted.empty());
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  scene.loop.advance(49h);
  CHECK(scene.status().counts.trimmed_at);
  scene.check_rules();
}

TEST_CASE("the agent's death at any piece of a trim costs nothing but the rest of that turn") {
  for (int at = 1; at < 6; ++at) {
    Scheduled scene;
    scene.stage();
    int pieces = 0;
    scene.world.calls.before_call = [&](const std::string& call) {
      if (call == "trim_from" && ++pieces == at) scene.world.calls.crash_at = 1;
    };
    try {
      scene.loop.advance(25h);
    } catch (const Crash&) {
    }
    scene.world.calls.before_call = nullptr;
    scene.world.calls.crash_at = 0;
    scene.kill_and_start(true);
    scene.loop.advance(49h);
    CHECK(scene.status().health == volume::Health::staged);
    CHECK(scene.status().counts.trimmed_at);
    CHECK(scene.want(kUnstaged) == errc::ok);
    scene.check_rules();
  }
}

TEST_CASE("an undone handover ends no schedule") {
  Scheduled scene;
  scene.stage();
  scene.until_a_piece();
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  scene.world.agent.resume();
  scene.loop.advance(1h);
  CHECK(scene.status().counts.trimmed_at);
  scene.check_rules();
}

TEST_CASE("after a piece that hangs, no volume is trimmed until its helper has ended") {
  Scheduled scene(1min);
  scene.stage_both();
  scene.until_a_piece_hangs();
  scene.loop.advance(85s);
  CHECK(scene.image().trims + scene.other().trims == 0);
  const auto why = [&](const std::string& id) { return scene.world.agent.shell().status(id)->why_not_trimmed; };
  CHECK_THAT(why(kId) + why(kSecond), ContainsSubstring("hangs"));
  scene.loop.advance(10min);
  CHECK(scene.image().trims > 1);
  CHECK(scene.other().trims > 1);
  scene.check_rules();
}

TEST_CASE("an unstage beside a piece that hangs is answered, and succeeds when the helper has ended") {
  Scheduled scene;
  scene.stage();
  scene.until_a_piece_hangs();
  const auto since = scene.loop.clock.now();
  CHECK(scene.want(kUnstaged) == errc::unavailable);
  CHECK(scene.loop.clock.now() - since < 30s);
  scene.loop.advance(90s);
  CHECK(scene.want(kUnstaged) == errc::ok);
  scene.check_rules();
}

TEST_CASE("a volume is handed over beside a piece that hangs, and is not left to healing") {
  Scheduled scene;
  scene.stage();
  scene.until_a_piece_hangs();
  scene.write_all();
  const auto since = scene.loop.clock.now();
  scene.world.agent.hand_over(true);
  CHECK(scene.loop.clock.now() - since < 5s);
  scene.loop.advance(1min);
  CHECK(scene.world.cluster.blocklisted.empty());
  CHECK(scene.waiting() == 0);
  scene.check_rules();
}

TEST_CASE("an agent ends beside a piece that hangs") {
  Scheduled scene;
  scene.stage();
  scene.until_a_piece_hangs();
  const auto since = scene.loop.clock.now();
  scene.world.agent.stop();
  CHECK(scene.loop.clock.now() - since < 5s);
}

TEST_CASE("a volume whose client was cut off is healed beside a piece that hangs") {
  Scheduled scene;
  scene.stage();
  scene.until_a_piece_hangs();
  scene.world.cluster.fence_host(scene.world.agent.node_address);
  scene.write_all();
  scene.loop.advance(1s);
  CHECK(scene.waiting() > 0);
  scene.world.cluster.unfence_host(scene.world.agent.node_address);
  scene.loop.advance(10s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.status().health == volume::Health::staged);
  scene.check_rules();
}

TEST_CASE("volumes are trimmed one after another") {
  Scheduled scene;
  scene.stage_both();
  std::size_t most = 0;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call != "trim_from") return;
    std::size_t busy = 0;
    for (const auto& one : scene.world.agent.shell().status()) busy += scene.world.calls.busy(one.volume_id) ? 1 : 0;
    most = std::max(most, busy);
  };
  scene.loop.advance(25h);
  CHECK(most <= 1);
  CHECK(scene.image().trims == static_cast<int>(scene.pieces()));
  CHECK(scene.other().trims > 0);
  scene.check_rules();
}
