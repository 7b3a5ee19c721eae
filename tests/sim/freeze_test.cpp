// Snapshots that freeze the filesystem: the freeze never outlives its snapshot for long, whatever dies, and nothing
// that somebody else froze is thawed.
#include <cerrno>

#include "support/world/ports.hpp"
#include "sweep.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::Blow;
using test::kId;
using Freezer = test::KernelDevice::Freezer;

namespace {

plan::Staged quiescing() {
  auto wish = test::staged();
  wish.source.serving.quiesce = true;
  return wish;
}

/// A snapshotter anywhere in the cluster.
struct Snapshot {
  std::optional<int> answer;
  int asked = 0;
  /// It asks every client that watches. `whole`: and waits for the answers.
  void begin(test::Scene& scene) {
    for (const auto& [serial, image] : scene.world.cluster.opened)
      if (image->quiesce([this](int r) { answer = std::min(answer.value_or(0), r); })) ++asked;
  }
  static void end(test::Scene& scene) {
    for (const auto& [serial, image] : scene.world.cluster.opened) image->unquiesce();
  }
};

/// A raw block volume, and a write of its application in each of three blocks.
struct RawBlock : test::Scene {
  RawBlock() {
    auto wish = test::block_wish();
    wish.source.serving.quiesce = true;
    REQUIRE(want(wish) == errc::ok);
  }
  void write() {
    for (std::size_t block = 0; block < 3; ++block) world.kernel.application_writes(device(), block);
  }
  std::size_t unanswered() { return device().requests.size(); }
  volume::Freezes freezes() { return world.agent.shell().status(kId)->counts.freezes; }
  void check_rules() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
};

struct Frozen : test::Scene {
  Frozen() { REQUIRE(want(quiescing()) == errc::ok); }
  Freezer freezer() { return device().frozen_by; }
  const plan::Record& record() { return world.disk.records.front(); }
  volume::Freezes freezes() { return world.agent.shell().status(kId)->counts.freezes; }
  void check_rules() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
};

}  // namespace

TEST_CASE("a snapshot freezes the filesystem of a volume that wants it, and thaws it when it is made") {
  Frozen scene;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  CHECK(snapshot.answer == 0);
  CHECK(scene.freezer() == Freezer::agent);
  CHECK(scene.record().freeze);
  CHECK(scene.world.agent.shell().status(kId)->frozen);
  Snapshot::end(scene);
  scene.loop.advance(1s);
  CHECK(scene.freezer() == Freezer::nobody);
  CHECK_FALSE(scene.record().freeze);
  CHECK(scene.freezes().made == 1);
  CHECK(scene.freezes().broken == 0);
  scene.check_rules();
}

TEST_CASE("a volume that does not want it and a reader watch no snapshots") {
  auto wish = GENERATE(test::staged(), test::block_wish(), quiescing());
  if (wish.source.serving.quiesce == true) wish.capability.read_only = true;
  test::Scene scene;
  scene.filled();
  REQUIRE(scene.want(wish) == errc::ok);
  Snapshot snapshot;
  snapshot.begin(scene);
  CHECK(snapshot.asked == 0);
  CHECK_FALSE(scene.world.agent.shell().status(kId)->quiesces);
}

TEST_CASE("the image's own quiesce mode, as of its open, outranks the volume's mapOptions") {
  const bool wanted = GENERATE(true, false);
  test::Scene scene;
  scene.filled();
  scene.image().metadata["conf_rbd_default_snapshot_quiesce_mode"] = wanted ? "required" : "skip";
  auto wish = test::staged();
  wish.source.serving.quiesce = !wanted;
  REQUIRE(scene.want(wish) == errc::ok);
  scene.image().metadata.clear();
  CHECK(scene.world.agent.shell().status(kId)->quiesces == wanted);
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  CHECK((scene.device().frozen_by == Freezer::agent) == wanted);
}

TEST_CASE("a snapshot of a volume that is mounted read-only for its damage is made, and freezes nothing") {
  test::Scene scene;
  scene.filled();
  scene.image().beyond_repair = true;
  auto wish = quiescing();
  wish.source.on_damage = plan::OnDamage::read_only;
  REQUIRE(scene.want(wish) == errc::ok);
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  CHECK(snapshot.asked == 1);
  CHECK(snapshot.answer == 0);
  CHECK(scene.device().frozen_by == Freezer::nobody);
  Snapshot::end(scene);
  scene.loop.advance(1s);
  CHECK_FALSE(scene.world.agent.shell().status(kId)->frozen);
}

TEST_CASE("a filesystem that somebody else froze refuses the snapshot, and stays frozen") {
  Frozen scene;
  scene.device().frozen_by = Freezer::somebody_else;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(30s);
  CHECK(snapshot.answer == -EBUSY);
  CHECK(scene.freezer() == Freezer::somebody_else);
  CHECK_FALSE(scene.record().freeze);
  CHECK(scene.freezes().refused == 1);
  scene.check_rules();
}

TEST_CASE("a freeze that was refused is not thawed even if the record cannot be written") {
  Frozen scene;
  scene.device().frozen_by = Freezer::somebody_else;
  int saves = 0;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call.find("save") != std::string::npos && ++saves >= 2 && saves <= 4) scene.world.calls.fail_at = 1;
  };
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1min);
  CHECK(snapshot.answer.value_or(0) < 0);
  CHECK(scene.freezer() == Freezer::somebody_else);
  CHECK_FALSE(scene.record().freeze);
  scene.check_rules();
}

TEST_CASE("a snapshotter that dies leaves the filesystem frozen no longer than the limit") {
  Frozen scene;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(4s);
  CHECK(scene.freezer() == Freezer::agent);
  scene.loop.advance(2s);
  CHECK(scene.freezer() == Freezer::nobody);
  CHECK(scene.freezes().broken == 1);
  // The answer of success may still be on its way.
  CHECK(snapshot.answer == -ETIME);
  scene.check_rules();
}

TEST_CASE("an agent that dies while a filesystem is frozen leaves a record by which the next agent thaws it") {
  Frozen scene;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  REQUIRE(scene.freezer() == Freezer::agent);
  scene.kill_and_start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  scene.loop.advance(10s);
  CHECK(scene.freezer() == Freezer::nobody);
  CHECK_FALSE(scene.record().freeze);
  scene.check_rules();
}

TEST_CASE("an agent that is about to hand over refuses a snapshot, until it stays after all") {
  Frozen scene;
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  Snapshot refused, made;
  refused.begin(scene);
  scene.loop.advance(1s);
  CHECK(refused.answer == -ESHUTDOWN);
  CHECK(scene.freezer() == Freezer::nobody);
  scene.world.agent.shell().resume();
  made.begin(scene);
  scene.loop.advance(1s);
  CHECK(made.answer == 0);
  scene.check_rules();
}

TEST_CASE("a snapshot that a dead agent answered counts as broken only if somebody else may have made it later") {
  const bool locks = GENERATE(true, false);
  test::Scene bare;
  bare.image().exclusive = locks;
  REQUIRE(bare.want(quiescing()) == errc::ok);
  Snapshot snapshot;
  snapshot.begin(bare);
  bare.loop.advance(1s);
  REQUIRE(snapshot.answer == 0);
  bare.kill_and_start();
  REQUIRE(bare.want(plan::Healed{.operator_override = true}) == errc::ok);
  bare.loop.advance(10s);
  CHECK(bare.device().frozen_by == Freezer::nobody);
  CHECK(bare.world.agent.shell().status(kId)->counts.freezes.broken == (locks ? 0 : 1));
}

TEST_CASE("an unstage thaws first, also after the agent died") {
  const bool dies = GENERATE(false, true);
  Frozen scene;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  REQUIRE(scene.freezer() == Freezer::agent);
  if (dies) scene.kill_and_start();
  CHECK(scene.want(test::kUnstaged) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
  scene.check_rules();
}

TEST_CASE("a handover lets a snapshot under way end, and the next agent freezes for the next one") {
  const bool ends = GENERATE(true, false);
  Frozen scene;
  Snapshot first, second;
  first.begin(scene);
  scene.loop.advance(1s);
  REQUIRE(scene.freezer() == Freezer::agent);
  const auto begun = scene.loop.clock.now();
  if (ends) scene.loop.clock.schedule(begun + 2s, [&] { Snapshot::end(scene); });
  scene.loop.clock.schedule(begun + 1s, [&] { CHECK(scene.freezer() == Freezer::agent); });
  scene.world.agent.hand_over();
  CHECK(scene.loop.clock.now() - begun < 6s);
  // A snapshot that was broken is refused at last.
  CHECK(first.answer == (ends ? 0 : -ETIME));
  CHECK(scene.freezer() == Freezer::nobody);
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  second.begin(scene);
  scene.loop.advance(1s);
  CHECK(second.answer == 0);
  Snapshot::end(scene);
  scene.loop.advance(1s);
  CHECK(scene.freezer() == Freezer::nobody);
  scene.check_rules();
}

TEST_CASE(
    "an agent dies, or a call fails, at every call of a snapshot: nothing stays frozen, and each snapshot answered "
    "with success was frozen") {
  for (const Blow blow : {Blow::crash_before, Blow::crash_after, Blow::fail, Blow::fail_after}) {
    for (int at = 1; at < 60; ++at) {
      INFO("blow " << static_cast<int>(blow) << " at call " << at);
      Frozen scene;
      scene.world.calls.error = {errc::unavailable, "made to fail"};
      counter(scene.world, blow) = at;
      Snapshot snapshot;
      snapshot.begin(scene);
      scene.loop.advance(2s);
      if (!scene.loop.crashed()) {
        if (snapshot.answer == 0) CHECK(scene.freezer() == Freezer::agent);
        Snapshot::end(scene);
        scene.loop.advance(2s);
      }
      const bool died = scene.loop.crashed();
      if (died) {
        scene.kill_and_start();
        CHECK(scene.want(plan::Healed{}) == errc::ok);
      }
      const bool fell = counter(scene.world, blow) == 0;
      counter(scene.world, blow) = 0;
      scene.loop.advance(1min);
      CHECK(scene.freezer() == Freezer::nobody);
      CHECK_FALSE(scene.record().freeze);
      CHECK((died || snapshot.answer.has_value()));
      scene.check_rules();
      if (!fell) break;
    }
  }
}

TEST_CASE("a healing does not wait for a freeze that hangs on a dead link, and thaws it afterwards") {
  test::Calm calm;
  Frozen scene;
  scene.world.hazards = &calm;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.device().alive = false;
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.device().alive);
  scene.loop.advance(1min);
  CHECK(scene.freezer() == Freezer::nobody);
  CHECK_FALSE(scene.record().freeze);
  scene.check_rules();
}

TEST_CASE("a snapshot of a raw block volume waits for requests under way, and new ones wait until it is made") {
  RawBlock scene;
  scene.write();
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  CHECK(snapshot.answer == 0);
  CHECK(scene.unanswered() == 0);
  scene.write();
  scene.loop.advance(1s);
  CHECK(scene.unanswered() == 3);
  Snapshot::end(scene);
  scene.loop.advance(1s);
  CHECK(scene.unanswered() == 0);
  CHECK(scene.freezes().made == 1);
  CHECK(scene.freezes().broken == 0);
  CHECK(scene.freezes().longest >= 2s);
  scene.check_rules();
}

TEST_CASE("requests to a raw block volume are held back no longer than the limit, and the snapshot is broken then") {
  RawBlock scene;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  REQUIRE(snapshot.answer == 0);
  scene.write();
  scene.loop.advance(3s);
  CHECK(scene.unanswered() == 3);
  scene.loop.advance(2s);
  CHECK(scene.unanswered() == 0);
  CHECK(scene.freezes().broken == 1);
  Snapshot::end(scene);
  Snapshot next;
  next.begin(scene);
  scene.loop.advance(1s);
  CHECK(next.answer == 0);
  Snapshot::end(scene);
  scene.loop.advance(1s);
  scene.write();
  scene.loop.advance(1s);
  CHECK(scene.unanswered() == 0);
  scene.check_rules();
}

TEST_CASE("an unstage of a raw block volume waits for its snapshot, and one that is killed holds nothing back") {
  const bool dies = GENERATE(false, true);
  RawBlock scene;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  REQUIRE(snapshot.answer == 0);
  if (dies) {
    scene.write();
    scene.kill_and_start();
    CHECK(scene.want(plan::Healed{}) == errc::ok);
    // The kernel repeats what it sent on the dead link when its timer says so.
    scene.loop.advance(1min);
    CHECK(scene.unanswered() == 0);
  }
  CHECK(scene.want(test::kUnstaged) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  scene.check_rules();
}

TEST_CASE("a handover lets a snapshot of a raw block volume end, or ends the hold at its limit") {
  const bool ends = GENERATE(true, false);
  RawBlock scene;
  Snapshot snapshot;
  snapshot.begin(scene);
  scene.loop.advance(1s);
  REQUIRE(snapshot.answer == 0);
  const auto begun = scene.loop.clock.now();
  if (ends) scene.loop.clock.schedule(begun + 2s, [&] { Snapshot::end(scene); });
  scene.world.agent.hand_over();
  CHECK(scene.loop.clock.now() - begun < 6s);
  CHECK(snapshot.answer == (ends ? 0 : -ETIME));
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  scene.write();
  scene.loop.advance(1s);
  CHECK(scene.unanswered() == 0);
  scene.check_rules();
}
