// SIGTERM: what was read is answered, whatever else is under way.
#include <algorithm>

#include "corbd/core/gate.hpp"
#include "scene.hpp"
#include "support/world/ports.hpp"

using namespace corbd;
using plan::Wish;
using test::kId;
using test::Scene;
using namespace std::chrono_literals;

namespace {

task<> ask(Scene& in, std::string id, Wish wish) {
  static_cast<void>(co_await in.world.agent.shell().want(std::move(id), std::move(wish), {}));
}

/// An application that writes without a pause.
struct Load {
  explicit Load(Scene& over) : scene(over) { write(); }
  void write() {
    for (auto& device : scene.world.kernel.devices)
      for (std::size_t block = 0; block < test::kBlocks; ++block) scene.world.kernel.application_writes(device, block);
    if (!stopped) scene.loop.outside_in(100ms, [this] { write(); });
  }
  Scene& scene;
  bool stopped = false;
};

}  // namespace

TEST_CASE(
    "SIGTERM under load with a stage under way drains every session, and nothing that was read stays without an "
    "answer",
    "[failure:48]") {
  test::Calm calm;
  Scene scene;
  scene.world.hazards = &calm;
  const std::vector<std::string> ids{kId, "image-2", "image-3", "image-4"};
  for (const auto& id : ids) {
    scene.world.cluster.images[id].id = "id-" + id;
    scene.world.cluster.images[id].data = true;
    scene.world.cluster.images[id].content = host::Probe::Kind::filesystem;
    scene.world.cluster.images[id].fstype = "ext4";
    REQUIRE(scene.want(test::staged_wish(id), id) == errc::ok);
  }
  // Its mkfs lasts longer than the agent may take to leave.
  scene.world.cluster.images["image-5"].id = "id-5";
  scene.world.calls.delayed = "mkfs";
  Gate gate(scene.loop.control(), scene.loop.clock);
  gate.spawn(ask(scene, "image-5", test::staged_wish("image-5")));
  scene.loop.advance(1s);
  REQUIRE(scene.world.kernel.devices.size() == 5);
  scene.world.cluster.slow = 600ms;
  Load load(scene);
  scene.loop.advance(1s);
  const auto before = scene.world.kernel.answered;
  scene.loop.run(scene.world.agent.leave_well());
  std::uint64_t unanswered = 0;
  for (const auto& [serial, link] : scene.world.kernel.links) unanswered += link->in_flight();
  CHECK(unanswered == 0);
  CHECK(scene.world.kernel.answered > before);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  load.stopped = true;
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}

TEST_CASE("an agent that leaves lets the kernel send what it is in the middle of", "[failure:158]") {
  test::Calm calm;
  Scene scene;
  scene.world.hazards = &calm;
  REQUIRE(scene.want(test::block_wish()) == errc::ok);
  // Of the kernel's requests it interrupts every fourth (Kernel::send).
  for (std::size_t block = 0; block < 3; ++block) scene.world.kernel.application_reads(scene.device(), block);
  scene.loop.advance(1s);
  scene.world.cluster.slow = 600ms;
  // What is read last keeps the agent here. It reads nothing meanwhile.
  bool half_sent = false;
  std::size_t blocks = 0;
  for (auto in = 0ms; in < 1500ms; in += 50ms)
    scene.loop.outside_in(in, [&] {
      if (blocks < test::kBlocks) ++blocks;
      for (std::size_t block = 0; block < blocks; ++block) scene.world.kernel.application_writes(scene.device(), block);
      half_sent |= std::ranges::any_of(scene.device().requests, &test::KernelRequest::half_sent);
    });
  scene.loop.advance(800ms);
  scene.loop.run(scene.world.agent.leave_well());
  CHECK(half_sent);
  scene.world.agent.kill();
  CHECK(scene.world.kernel.errors == 0);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  scene.loop.advance(1s);
  scene.world.hazards = nullptr;
}

TEST_CASE("an agent that leaves while a volume is given up destroys no session whose operations are under way") {
  /// The kernel sees the end of the link once the agent has stopped its volumes.
  struct Late final : test::Calm {
    duration until_seen_dead() override { return 2500ms; }
  } late;
  Scene scene;
  REQUIRE(scene.want(test::block_wish()) == errc::ok);
  scene.world.hazards = &late;
  scene.world.cluster.dead = true;
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(100ms);
  Gate gate(scene.loop.control(), scene.loop.clock);
  gate.spawn(ask(scene, kId, plan::GivenUp()));
  scene.loop.advance(500ms);
  scene.loop.run(scene.world.agent.leave_well());
  scene.loop.advance(1s);
  scene.world.agent.kill();
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  scene.world.hazards = nullptr;
}

TEST_CASE("an agent that leaves begins no step any more, and its successor ends what was under way") {
  Scene scene;
  // It asks where the image is, and hears of it while the agent leaves.
  scene.world.cluster.slow = 1s;
  Gate gate(scene.loop.control(), scene.loop.clock);
  gate.spawn(ask(scene, kId, test::staged_wish(kId)));
  scene.loop.advance(10ms);
  std::vector<std::string> calls;
  scene.world.calls.before_call = [&](const std::string& call) { calls.push_back(call); };
  scene.loop.run(scene.world.agent.leave_well());
  CHECK(scene.world.agent.want(kId, test::staged_wish(kId)).error().code == errc::unavailable);
  scene.loop.advance(2min);
  CHECK(calls.empty());
  CHECK(scene.world.kernel.devices.empty());
  scene.world.calls.before_call = nullptr;
  scene.world.cluster.slow = {};
  scene.kill_and_start();
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("an agent that is killed while it answers its last requests leaves no coroutine of theirs behind") {
  test::Calm calm;
  Scene scene;
  scene.world.hazards = &calm;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.cluster.slow = std::chrono::seconds(1);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.outside_in(std::chrono::milliseconds(500), [&] { scene.loop.crash(); });
  REQUIRE_THROWS_AS(scene.loop.run(scene.world.agent.leave_well()), test::Crash);
  scene.world.cluster.slow = {};
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.world.hazards = nullptr;
}
