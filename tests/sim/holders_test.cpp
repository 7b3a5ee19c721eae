// A stage of an image that another node's client has: it waits, takes the image over, or says who has it.
#include <algorithm>

#include "scene.hpp"

using namespace corbd;
using plan::Attachment;
using test::kId;
using test::kUnstaged;
using test::Scene;
using namespace std::chrono_literals;

namespace {

const std::string kHolder = "10.0.0.7:0/1", kHost = "10.0.0.7";
using HolderState = plan::HolderNode::State;

/// Another node's client has the image open, and locked if it has a lock.
struct Held : Scene {
  explicit Held(bool exclusive = true, bool flag = false) {
    filled();
    image().exclusive = exclusive;
    REQUIRE(world.cluster.visit(image(), kHolder, false));
    world.agent.fence_out_of_service = flag;
    world.agent.kill();
    world.agent.clients.clear();  // nothing of the first life is to be fenced
    world.agent.start(true);
  }
  ~Held() {
    if (world.agent.running()) world.agent.kill();
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  result<> want_within(plan::Wish wish, duration limit) {
    return loop.run(world.agent.shell().want(kId, std::move(wish), {loop.clock.now() + limit}));
  }
  result<> stage_within(duration limit) { return want_within(test::staged_wish(kId), limit); }
  /// Its answer goes to `answer`.
  void begin_stage(duration limit) {
    asio::co_spawn(loop.io, staging(*this, {loop.clock.now() + limit}), asio::detached);
  }
  static task<> staging(Held& scene, Until until) {
    scene.answer = co_await scene.world.agent.shell().want(kId, test::staged_wish(kId), until);
  }
  bool watched_by_us() { return image().watchers.contains(world.agent.client()); }
  bool served() { return !world.kernel.devices.empty() && device().alive; }
  /// Who is blocklisted besides the dead clients of this node.
  std::set<std::string> cut_off() {
    std::set<std::string> others = world.cluster.cut_off_clients();
    std::erase_if(others, [&](const auto& address) { return world.agent.clients.contains(address); });
    return others;
  }
  /// The OSDs have not heard of it yet, so its watch is still there.
  void fence_holder() { world.cluster.fence_host(kHost, 1h); }
  void node_is(HolderState state) {
    world.nodes.by_name["node-7"] = {
        .address = kHost, .ready = state == HolderState::ready, .out_of_service = state == HolderState::out_of_service};
    world.attachment = {Attachment::State::here, "uid-1", ""};
  }
  std::ptrdiff_t notices(const std::string& reason) {
    return std::ranges::count_if(world.notices, [&](const auto& told) { return told.second.reason == reason; });
  }
  void block_fails() {
    world.calls.before_call = [this](const std::string& call) {
      if (call == "block") world.calls.fail_at = 1;
    };
  }
  std::optional<result<>> answer;
};

}  // namespace

// --- The wait -----------------------------------------------------------------------------------

TEST_CASE("a stage waits within its call's deadline until the holder leaves, and goes on then", "[failure:106]") {
  Held scene(GENERATE(true, false));
  scene.loop.outside_in(40s, [&] { scene.world.cluster.leave(scene.image(), kHolder, true); });
  CHECK(scene.stage_within(2min));
  CHECK(scene.served());
  CHECK(scene.cut_off().empty());
}

TEST_CASE("a stage that waits in vain names the holder before its caller's deadline", "[failure:106]") {
  Held scene;
  const auto done = scene.stage_within(2min);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::in_use);
  CHECK(done.error().text.find(kHolder) != std::string::npos);
  CHECK(scene.image().lock_owner == kHolder);
}

TEST_CASE("a stage that waits has the image open only while it looks", "[failure:106]") {
  Held scene;
  int looks = 0, watched = 0, samples = 0;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call != "open") return;
    CHECK_FALSE(scene.watched_by_us());
    ++looks;
  };
  scene.begin_stage(2min);
  for (; !scene.answer; ++samples) {
    scene.loop.advance(97ms);
    watched += scene.watched_by_us() ? 1 : 0;
  }
  CHECK(looks > 5);
  CHECK(watched * 10 < samples);
}

TEST_CASE("an unstage ends the wait of a stage at once") {
  Held scene;
  scene.begin_stage(2min);
  scene.loop.advance(20s);
  REQUIRE_FALSE(scene.answer);
  CHECK(scene.want_within(kUnstaged, 10s));
  REQUIRE(scene.answer);
  CHECK(scene.answer->error().code == errc::in_use);
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a stage without a deadline does not wait for a holder") {
  Held scene;
  int looks = 0;
  scene.world.calls.before_call = [&](const std::string& call) { looks += call == "open" ? 1 : 0; };
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
  CHECK(looks == 1);
}

TEST_CASE("an agent that is told to leave ends the wait of a stage") {
  Held scene;
  scene.begin_stage(10min);
  scene.loop.advance(20s);
  REQUIRE_FALSE(scene.answer);
  scene.loop.run(scene.world.agent.leave_well());
  scene.loop.poll();
  REQUIRE(scene.answer);
  CHECK_FALSE(*scene.answer);
}

TEST_CASE("a waiting volume makes one Event for each set of holders") {
  Held scene;
  for (int tries = 0; tries < 3; ++tries) CHECK_FALSE(scene.stage_within(30s));
  CHECK(scene.notices("VolumeInUse") == 1);
  scene.image().watchers.insert("10.0.0.8:0/1");
  for (int tries = 0; tries < 3; ++tries) CHECK_FALSE(scene.stage_within(30s));
  CHECK(scene.notices("VolumeInUse") == 2);
}

// --- Taking an image over -----------------------------------------------------------------------

TEST_CASE("a lock that somebody made by hand keeps its image from being taken, and fences nobody", "[failure:106]") {
  Scene scene;
  scene.filled();
  scene.image().lock_by(kHolder);
  scene.image().lock_by_hand = true;
  auto wish = test::staged_wish(kId);
  wish.mounter = GENERATE(plan::Mounter::nbd, plan::Mounter::krbd);
  CHECK(scene.want(wish) == errc::in_use);
  CHECK(scene.image().lock_owner == kHolder);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(kHolder));
  CHECK(scene.world.kernel.devices.empty());
  // Who needs the lock may work on the image.
  CHECK(scene.image().watchers.empty());
  scene.image().lock_by("");
  scene.image().lock_by_hand = false;
  CHECK(scene.want(wish) == errc::ok);
}

TEST_CASE("a fenced holder is blocklisted by its very address, and its image staged", "[failure:141]") {
  Held scene(GENERATE(true, false));
  scene.fence_holder();
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.served());
  CHECK(scene.cut_off() == std::set{kHolder});
}

TEST_CASE("late writes of a fenced holder do not land after its host's fence has ended", "[failure:141][failure:164]") {
  Held scene(GENERATE(true, false));
  scene.fence_holder();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  const auto before = scene.image().blocks;
  scene.world.cluster.unfence_host(kHost);
  scene.world.cluster.late_write("id-1", kHolder);
  CHECK(scene.image().blocks == before);
}

TEST_CASE("a lock whose owner lost its watch to a fence is taken only when that client has an entry of its own") {
  Held scene;
  scene.world.cluster.fence_host(kHost);
  REQUIRE(scene.image().watchers.empty());
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.cut_off() == std::set{kHolder});
  const auto before = scene.image().blocks;
  scene.world.cluster.unfence_host(kHost);
  scene.world.cluster.late_write("id-1", kHolder);
  CHECK(scene.image().blocks == before);
}

TEST_CASE("a write of a client that died with its lock does not land days after the image was taken from it",
          "[failure:107][rule:2]") {
  Held scene;
  scene.image().watchers.clear();
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "break lock" || call == "acquire lock") CHECK(scene.cut_off() == std::set{kHolder});
  };
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.notices("VolumeTakenOver") == 1);
  scene.world.cluster.entries_age(6 * 24h);
  const auto before = scene.image().blocks;
  scene.world.cluster.late_write("id-1", kHolder);
  CHECK(scene.image().blocks == before);
}

TEST_CASE("a client that died with its lock keeps it while it cannot be blocklisted", "[failure:107]") {
  Held scene;
  scene.image().watchers.clear();
  scene.block_fails();
  CHECK(scene.want(test::staged_wish(kId)) == errc::unreachable);
  CHECK(scene.image().lock_owner == kHolder);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a living client that sets its watch anew is not cut off, and keeps its image", "[failure:107]") {
  Held scene(GENERATE(true, false));
  scene.image().watchers.clear();
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "blocklist") scene.image().watchers.insert(kHolder);
  };
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
  CHECK(scene.cut_off().empty());
  CHECK(scene.image().watchers == std::set{kHolder});
}

TEST_CASE(
    "a client that somebody cut off for an hour is cut off again when that ends, whatever this node's clock shows",
    "[failure:107][failure:164]") {
  Held scene(GENERATE(true, false));
  scene.loop.clock.wall_offset = GENERATE(-10'000h, 0h, 10'000h);
  scene.world.cluster.monitors_ahead = GENERATE(-1'000h, 1'000h);
  scene.world.cluster.blocklist(kHolder, 1h);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.cluster.entries_age(6 * 24h);
  const auto before = scene.image().blocks;
  scene.world.cluster.late_write("id-1", kHolder);
  CHECK(scene.image().blocks == before);
}

TEST_CASE("an entry that lasts longer is not made shorter when its client is cut off", "[failure:107][failure:164]") {
  Held scene;
  scene.world.cluster.blocklist(kHolder, 30 * 24h);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.cluster.entries_age(29 * 24h);
  CHECK(scene.world.cluster.has_entry(kHolder));
}

TEST_CASE("an unsigned writer's mark gets no client cut off, and its image waits for an operator", "[failure:143]") {
  Held scene(false);
  scene.image().watchers.clear();
  scene.image().writer_signs = false;
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
  CHECK(scene.error().find("corbd take") != std::string::npos);
  CHECK(scene.cut_off().empty());
  CHECK(scene.world.kernel.devices.empty());
  scene.world.cluster.blocklist(kHolder);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("a dead writer of an image without a lock is cut off before anybody else writes, by the mark that it left",
          "[failure:143]") {
  Held scene(false);
  const bool fenced = GENERATE(true, false);
  if (fenced)
    scene.world.cluster.fence_host(kHost);
  else
    scene.image().watchers.clear();
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.cut_off() == std::set{kHolder});
  CHECK(scene.image().writer == scene.world.agent.client());
  const auto before = scene.image().blocks;
  if (fenced) scene.world.cluster.unfence_host(kHost);
  scene.world.cluster.late_write("id-1", kHolder);
  CHECK(scene.image().blocks == before);
}

TEST_CASE("a client that left an image without a lock well is not cut off", "[failure:143]") {
  Held scene(false);
  scene.world.cluster.leave(scene.image(), kHolder, true);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.cut_off().empty());
}

TEST_CASE("an image without a lock that cannot be taken from its dead writer is not served", "[failure:143]") {
  Held scene(false);
  scene.image().watchers.clear();
  scene.block_fails();
  CHECK(scene.want(test::staged_wish(kId)) == errc::unreachable);
  CHECK(scene.image().writer == kHolder);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("an image without a lock has its writer's mark from before its device is there until it is closed") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = false;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call.starts_with("kernel connect")) CHECK(scene.image().writer == scene.world.agent.client());
  };
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.image().writer == scene.world.agent.client());
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.image().writer.empty());
}

TEST_CASE("an operator override does not count for an image without exclusive-lock that another client marked since",
          "[failure:143]") {
  Held scene(false);
  scene.world.cluster.leave(scene.image(), kHolder, true);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.agent.kill();
  REQUIRE(scene.world.cluster.visit(scene.image(), kHolder, true));
  scene.image().watchers.clear();
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{true}) == errc::unproven);
  CHECK(scene.error().find(kHolder) != std::string::npos);
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("an operator override counts against a mark that an agent of this very node left, whose files are gone") {
  Held scene(false);
  scene.world.cluster.leave(scene.image(), kHolder, true);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  const std::string old = scene.world.agent.client();
  scene.world.agent.kill();
  scene.world.agent.clients.clear();
  scene.image().watchers.clear();
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK(scene.world.cluster.blocklisted.contains(old));
  CHECK(scene.image().writer == scene.world.agent.client());
}

TEST_CASE("with the flag, a volume attached here is taken over from an out-of-service node, and an Event says so",
          "[failure:141]") {
  Held scene(true, true);
  scene.node_is(HolderState::out_of_service);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.served());
  CHECK(scene.cut_off() == std::set{kHolder});
  CHECK(scene.notices("VolumeTakenOver") == 1);
  CHECK(scene.notices("VolumeInUse") == 0);
}

TEST_CASE("without the flag a node that is out of service keeps its image", "[failure:141]") {
  Held scene;
  scene.node_is(HolderState::out_of_service);
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
  CHECK(scene.error().find("--fence-out-of-service") != std::string::npos);
  CHECK(scene.cut_off().empty());
}

TEST_CASE("a node that becomes out of service while a stage waits ends the wait", "[failure:161]") {
  Held scene(true, true);
  scene.node_is(HolderState::not_ready);
  scene.loop.outside_in(20s, [&] { scene.node_is(HolderState::out_of_service); });
  CHECK(scene.stage_within(2min));
  CHECK(scene.served());
}

TEST_CASE("an image stays as it is while its holder cannot be blocklisted", "[failure:141]") {
  Held scene(GENERATE(true, false));
  scene.fence_holder();
  scene.block_fails();
  const auto version = scene.image().version;
  CHECK(scene.want(test::staged_wish(kId)) == errc::unreachable);
  CHECK(scene.image().version == version);
  CHECK(scene.image().watchers == std::set{kHolder});
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.notices("VolumeTakenOver") == 0);
  scene.world.calls.before_call = nullptr;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}
