// What fails on the node: its disk, its kernel, its filesystems. docs/failures.md has the number of each story.
#include "corbd/core/gate.hpp"
#include "scene.hpp"

using namespace corbd;
using plan::Wish;
using test::kId;
using test::kPath;
using test::Scene;
using test::World;
using namespace std::chrono_literals;

namespace {

void stage_filled(Scene& scene) {
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
}

plan::Staged second_wish() { return test::staged_wish("image-2"); }

void add_second(Scene& scene) { scene.world.cluster.images["image-2"].id = "id-2"; }

void is_served(Scene& scene) {
  REQUIRE(scene.world.kernel.devices.size() == 1);
  CHECK(scene.device().alive);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

}  // namespace

// --- Its disk -----------------------------------------------------------------------------------

TEST_CASE("a new stage on a full state directory fails before it acts, and succeeds once there is room",
          "[failure:18]") {
  Scene scene;
  scene.world.disk.state = GENERATE(test::Disk::State::full, test::Disk::State::read_only);
  CHECK(scene.want(test::staged_wish(kId)) == errc::state_write);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.image().lock_owner.empty());
  CHECK(scene.image().generation == 0);
  scene.world.disk.state = test::Disk::State::good;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("staged volumes on a full state directory are served on, published and healed", "[failure:19]") {
  Scene scene;
  stage_filled(scene);
  scene.world.disk.state = GENERATE(test::Disk::State::full, test::Disk::State::read_only);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1s);
  CHECK(scene.world.kernel.answered == 1);
  scene.world.cluster.blocklist(scene.world.agent.client());
  scene.loop.advance(1s);
  const bool room_for_addresses = scene.world.disk.state == test::Disk::State::full;
  CHECK(scene.want(plan::Healed{}) == errc::state_write);
  CHECK(scene.want(plan::Healed{}) == (room_for_addresses ? errc::ok : errc::state_write));
  CHECK(scene.device().alive == room_for_addresses);
}

TEST_CASE("a full state directory does not keep a device from being served, however often the agent dies",
          "[failure:18]") {
  Scene scene;
  stage_filled(scene);
  scene.world.disk.state = test::Disk::State::full;
  for (int death = 0; death < 4; ++death) {
    scene.kill_and_start();
    CHECK(scene.want(plan::Healed{}) == errc::state_write);
    CHECK(scene.want(plan::Healed{}) == errc::ok);
  }
  is_served(scene);
}

TEST_CASE(
    "an agent that dies on a full disk between breaking and taking its lock leaves the volume unproven and unwritten",
    "[failure:18]") {
  Scene scene;
  stage_filled(scene);
  scene.world.disk.state = test::Disk::State::full;
  scene.kill_and_start();
  REQUIRE(scene.want(plan::Healed{}) == errc::state_write);
  scene.world.calls.crash_in = "acquire lock";
  CHECK_THROWS_AS(scene.want(plan::Healed{}), test::Crash);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
}

TEST_CASE("an unstage on a full disk ends once there is room, and leaves nothing", "[failure:18]") {
  Scene scene;
  stage_filled(scene);
  scene.world.disk.state = test::Disk::State::full;
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::state_write);
  scene.world.disk.state = test::Disk::State::good;
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE(
    "a damaged record is set aside, its device left alone until a stage finds it by its stash, and every other volume "
    "healed",
    "[failure:20]") {
  const bool stash = GENERATE(true, false);
  Scene scene;
  stage_filled(scene);
  add_second(scene);
  REQUIRE(scene.want(second_wish(), "image-2") == errc::ok);
  scene.world.disk.torn_records.insert(kId);
  scene.kill_and_start();
  CHECK(scene.world.disk.set_aside == std::vector{kId});
  CHECK(scene.want(plan::Healed{}, "image-2") == errc::ok);
  CHECK_FALSE(scene.device().alive);
  if (!stash) scene.world.disk.stashes.erase(kPath);
  CHECK(scene.want(test::staged_wish(kId)) == (stash ? errc::ok : errc::failed_precondition));
  REQUIRE(scene.world.kernel.devices.size() == 2);
  CHECK(scene.device().alive == stash);
  CHECK(scene.world.kernel.devices.back().alive);
}

TEST_CASE("a volume whose record is of a newer version is left as it is, also when its device went with a reboot",
          "[failure:21]") {
  Scene scene;
  stage_filled(scene);
  scene.world.disk.newer_records.insert(kId);
  if (GENERATE(false, true)) {
    scene.world.reboot();
    scene.world.agent.start();
    CHECK(scene.want(test::staged_wish(kId)) == errc::state_newer);
  } else {
    scene.kill_and_start();
    CHECK(scene.want(test::staged_wish(kId)) == errc::state_newer);
    REQUIRE(scene.world.kernel.devices.size() == 1);
    CHECK_FALSE(scene.device().alive);
  }
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  REQUIRE(scene.world.disk.records.size() == 1);
  CHECK(scene.world.disk.records.front().stagings.size() == 1);
}

// --- Its kernel ---------------------------------------------------------------------------------

TEST_CASE("a link that the kernel drops because it has not seen the end of the old one is made again until it is taken",
          "[failure:4][rule:4]") {
  struct SeenLate : test::Calm {
    duration until_seen_dead() override { return 3s; }
  } late;
  Scene scene;
  scene.world.hazards = &late;
  stage_filled(scene);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.kill_and_start(true);
  scene.loop.advance(30s);
  CHECK(scene.device().alive);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}

TEST_CASE("a device that the kernel connected or reconnected without answering is used, not made twice",
          "[failure:45][rule:I4]") {
  Scene scene;
  scene.filled();
  const auto lose = [&](const std::string& reply) {
    scene.world.calls.before_call = [&scene, reply](const std::string& call) {
      if (call != reply) return;
      scene.world.calls.before_call = nullptr;
      scene.world.calls.fail_after_at = 1;
      scene.world.calls.error = {errc::unavailable, "no buffer space available"};
    };
  };
  lose("kernel connect");
  CHECK(scene.want(test::staged_wish(kId)) == errc::unavailable);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  is_served(scene);
  scene.kill_and_start();
  lose("kernel reconfigure");
  CHECK(scene.want(plan::Healed{}) == errc::unavailable);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  is_served(scene);
}

TEST_CASE("a device that became another tool's while the agent was down is neither served nor disconnected",
          "[failure:29]") {
  Scene scene;
  stage_filled(scene);
  scene.world.agent.kill();
  scene.world.kernel.mounts.clear();
  scene.device().backend = "somebody else's";
  scene.device().alive = true;
  scene.device().link = -1;
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  REQUIRE(scene.world.kernel.devices.size() == 1);
  CHECK(scene.device().link == -1);
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a stage without the nbd driver or a free device says so and leaves nothing that blocks its repeat",
          "[failure:30]") {
  Scene scene;
  scene.filled();
  const auto [driver, code] = GENERATE(std::pair(test::Kernel::Driver::missing, errc::failed_precondition),
                                       std::pair(test::Kernel::Driver::full, errc::exhausted));
  scene.world.kernel.driver = driver;
  CHECK(scene.want(test::staged_wish(kId)) == code);
  CHECK(scene.world.kernel.devices.empty());
  if (final_for_caller(code)) {
    CHECK(scene.image().lock_owner.empty());
    CHECK(scene.world.disk.records.empty());
    CHECK(scene.world.disk.keys.empty());
  }
  scene.world.kernel.driver = test::Kernel::Driver::there;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  is_served(scene);
}

TEST_CASE(
    "without a free descriptor heals and stages fail at once, served volumes stay served, and repeats succeed once "
    "descriptors are free",
    "[failure:41]") {
  Scene scene;
  stage_filled(scene);
  add_second(scene);
  REQUIRE(scene.want(second_wish(), "image-2") == errc::ok);
  scene.world.agent.no_descriptor = true;
  scene.world.cluster.images["image-3"].id = "id-3";
  CHECK(scene.want(test::staged_wish("image-3"), "image-3") == errc::state_write);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1s);
  CHECK(scene.world.kernel.answered == 1);
  scene.world.cluster.blocklist(scene.world.agent.client());
  scene.loop.advance(1s);
  CHECK(scene.want(plan::Healed{}) != errc::ok);
  CHECK(scene.want(plan::Healed{}) == errc::exhausted);
  scene.world.agent.no_descriptor = false;
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.want(test::staged_wish("image-3"), "image-3") == errc::ok);
  CHECK(scene.device().alive);
}

// --- Its filesystems ----------------------------------------------------------------------------

TEST_CASE("a format that hangs is left to end, nothing else uses its device meanwhile, and then the stage succeeds",
          "[failure:46]") {
  Scene scene;
  scene.world.calls.delayed = "mkfs";
  CHECK(scene.want(test::staged_wish(kId)) == errc::unavailable);
  CHECK(scene.want(plan::Unstaged{kPath}) != errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  scene.loop.advance(2min);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.image().generation == 1);
}

TEST_CASE("a filesystem with errors that stay after its check is neither mounted nor formatted", "[failure:47]") {
  Scene scene;
  scene.filled();
  scene.image().beyond_repair = true;
  CHECK(scene.want(test::staged_wish(kId)) == errc::failed_precondition);
  CHECK(scene.image().checks == 1);
  CHECK(scene.image().generation == 0);
  CHECK(scene.world.kernel.mounts.empty());
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a damaged filesystem is refused or mounted read-only as its volume says, with an Event, and is not changed",
          "[failure:47]") {
  Scene scene;
  scene.kill_and_start(true);
  scene.filled();
  scene.image().beyond_repair = true;
  auto wish = test::staged_wish(kId);
  wish.source.on_damage = GENERATE(plan::OnDamage::refuse, plan::OnDamage::read_only);
  const bool reads = wish.source.on_damage == plan::OnDamage::read_only;
  CHECK(scene.want(wish) == (reads ? errc::ok : errc::failed_precondition));
  CHECK(scene.image().checks == 1);
  REQUIRE(scene.world.kernel.devices.size() == (reads ? 1 : 0));
  const auto& notices = scene.world.notices;
  const auto told =
      std::ranges::find_if(notices, [](const auto& one) { return one.second.reason == "FilesystemDamaged"; });
  REQUIRE(told != notices.end());
  CHECK_THAT(told->second.message, ContainsSubstring("e2fsck -f"));
  if (!reads) return;
  CHECK(scene.world.kernel.mounts.front().options.ends_with("ro,noload"));
  CHECK(scene.world.kernel.takes_no_write(scene.device()));
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.takes_no_write(scene.device()));
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.kernel.read_only_numbers.empty());
  scene.image().beyond_repair = false;
  CHECK(scene.want(wish) == errc::ok);
  CHECK_FALSE(scene.world.kernel.takes_no_write(scene.device()));
}

TEST_CASE("an unmount that waits for a device without a server holds up no other volume, and ends when it is healed",
          "[failure:52]") {
  test::Calm calm;
  Scene scene;
  scene.world.hazards = &calm;
  stage_filled(scene);
  add_second(scene);
  scene.world.kernel.application_writes(scene.device(), 0);
  // Between the look at its link and the unmount.
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call != "unmount") return;
    scene.world.calls.before_call = nullptr;
    scene.world.cluster.dead = true;
    scene.world.cluster.blocklist(scene.world.agent.client());
  };
  Gate gate(scene.loop.control(), scene.loop.clock);
  std::vector<errc> ends;
  const auto ask = [](Scene& in, std::vector<errc>& into) -> task<> {
    const auto done = co_await in.world.agent.shell().want(kId, Wish(plan::Unstaged{kPath}), {});
    into.push_back(done ? errc::ok : done.error().code);
  };
  gate.spawn(ask(scene, ends));
  scene.loop.advance(5s);
  REQUIRE_FALSE(scene.device().alive);
  CHECK(scene.world.kernel.mounts.size() == 1);
  scene.world.cluster.revive();
  CHECK(scene.want(second_wish(), "image-2") == errc::ok);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.loop.advance(2min);
  CHECK(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.world.kernel.errors == 0);
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}
