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

TEST_CASE("a volume is not staged on a device whose disconnect is still under way, and is on a new one afterwards",
          "[failure:140]") {
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

TEST_CASE("a disconnect that ended after its caller had left is known, also while somebody has the device open",
          "[failure:140]") {
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
    "or not it happened",
    "[failure:140]") {
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

TEST_CASE("a connect and a reconnect that end after their callers had left are taken as they are", "[failure:140]") {
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

TEST_CASE("a resize that waited too long behind other kernel commands is requested again, not sent late",
          "[failure:140][rule:3]") {
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

TEST_CASE("an agent that is told to leave waits for the command under way, and serves its device meanwhile",
          "[failure:140]") {
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
  const auto at_reconnect = scene.world.agent.shell().status(kId)->counts.longest_stall;
  scene.loop.advance(5s);
  const auto in_the_end = scene.world.agent.shell().status(kId)->counts.longest_stall;
  if (waits)
    CHECK(in_the_end >= 5s + 1s);
  else
    CHECK((at_reconnect == in_the_end && in_the_end >= 5s && in_the_end < 6s));
}

namespace {
/// Nothing comes at a moment at which the agent looks.
struct Uneven : test::Calm {
  duration any(duration most) override { return std::min<duration>(most, 37ms); }
};
}  // namespace

TEST_CASE("a stall lasts as long as the cluster takes to answer the request that waited") {
  Uneven uneven;
  Scene scene;
  scene.world.hazards = &uneven;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.cluster.dead = true;
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1s);
  scene.world.cluster.dead = false;
  scene.kill_and_start();
  scene.loop.advance(5s);
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  scene.world.cluster.slow = 20s;
  scene.loop.advance(10s);
  CHECK(scene.world.agent.shell().status(kId)->counts.longest_stall == duration::zero());
  scene.loop.advance(30s);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.agent.shell().status(kId)->counts.longest_stall >= 5s + 20s);
  scene.world.hazards = nullptr;
}

namespace {

/// A resize is under way in the kernel, which waits for a write that the cluster does not answer.
void grow_and_stall(Scene& scene) {
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call != "kernel resize" || scene.world.kernel.frozen) return;
    scene.world.cluster.dead = true;
    scene.world.kernel.application_writes(scene.device(), 0);
  };
  scene.image().size *= 2;
  scene.world.cluster.resized(scene.image().id);
  REQUIRE(scene.want(plan::Healed{}) == errc::timed_out);
  scene.world.calls.before_call = {};
  REQUIRE(scene.world.kernel.frozen);
}

}  // namespace

TEST_CASE("an agent that is killed while a resize waits for a write in flight ends, and the next one answers the write",
          "[failure:162][rule:3]") {
  Scene scene;
  scene.world.agent.keeper = true;
  grow_and_stall(scene);
  const auto size = scene.image().size;
  scene.kill_and_start(true);
  scene.loop.advance(5min);
  scene.world.cluster.revive();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.loop.advance(1s);
  CHECK_FALSE(scene.world.kernel.frozen);
  CHECK(scene.waiting() == 0);
  CHECK(scene.device().size == size);
  CHECK(scene.world.kernel.deaths == 0);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("while a resize waits no other command is begun, and the next volume is staged when it has ended",
          "[failure:162]") {
  Scene scene;
  scene.world.cluster.images["image-2"].id = "id-2";
  grow_and_stall(scene);
  CHECK(scene.want(test::staged_wish("image-2"), "image-2") != errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  scene.world.cluster.revive();
  scene.loop.advance(1s);
  CHECK(scene.want(test::staged_wish("image-2"), "image-2") == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 2);
}

TEST_CASE("without a keeper a device whose agent is killed while its resize waits is served again only after a boot",
          "[failure:162]") {
  Scene scene;
  grow_and_stall(scene);
  scene.kill_and_start();
  scene.world.cluster.revive();
  CHECK(scene.want(plan::Healed{}) != errc::ok);
  CHECK(scene.world.kernel.stands());
}

namespace {

/// The driver is busy with a disconnect for some seconds; all other commands are quick.
struct BusyDriver : test::Calm {
  test::Fate fate(const std::string& call) override {
    test::Fate fate;
    if (call == "disconnect") fate.before = 5s;
    if (call == "kernel connect") fate.before = 100ms;
    return fate;
  }
};

}  // namespace

TEST_CASE("a connect that waited for its turn takes no number that a volume was given and lost meanwhile",
          "[failure:140]") {
  BusyDriver busy;
  Scene scene;
  scene.world.hazards = &busy;
  for (const char* name : {"image-2", "image-3", "image-4"})
    scene.world.cluster.images[name].id = std::string("id-of-") + name;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  auto raw = test::block_wish();
  raw.source.image = "image-2";
  raw.path = "/kubelet/staging/image-2";
  const auto want = [&](std::string id, plan::Wish wish) {
    asio::co_spawn(scene.loop.io, scene.world.agent.shell().want(std::move(id), std::move(wish), {}), asio::detached);
  };
  // The lowest number becomes free for the second volume.
  want("image-4", test::staged_wish("image-4"));
  scene.loop.advance(20s);
  REQUIRE(scene.want(kUnstaged) == errc::ok);
  // Their commands wait one behind the other: the second volume's connect, the disconnect, the third one's connect.
  want("image-2", raw);
  scene.loop.advance(10ms);
  want("image-4", plan::Unstaged{test::staged_wish("image-4").path});
  scene.loop.advance(10ms);
  want("image-3", test::staged_wish("image-3"));
  scene.loop.advance(500ms);
  const auto in_queue = scene.world.calls.under_way.size();
  auto& devices = scene.world.kernel.devices;
  const auto lost = std::ranges::find(devices, "image-2", &test::KernelDevice::backend);
  REQUIRE(in_queue == 2);
  REQUIRE(lost != devices.end());
  const auto number = lost->index;
  scene.world.kernel.disconnect(number);
  REQUIRE(std::ranges::find(devices, "image-2", &test::KernelDevice::backend) == devices.end());
  REQUIRE(scene.world.kernel.mounts.back().root == "/nbd" + std::to_string(number));
  scene.loop.advance(20s);
  const auto next = std::ranges::find(devices, "image-3", &test::KernelDevice::backend);
  REQUIRE(next != devices.end());
  CHECK(next->index != number);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
}
