// Before a handover an agent writes again what the disk refused or lost, because the next agent reads only the files.
#include "corbd/core/gate.hpp"
#include "dead.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

/// It refused the last handover.
void serves_on(Scene& in) {
  in.world.agent.resume();
  in.world.kernel.application_writes(in.device(), 0);
  in.loop.advance(1s);
  CHECK(in.waiting() == 0);
}

task<> heal_on_override(Scene& in) {
  static_cast<void>(co_await in.world.agent.shell().want(kId, plan::Healed{true}, {}));
}

/// Its volume has a dead client that is no longer known, so only an operator override heals it.
void start_on_full_disk(Dead& scene) {
  scene.world.agent.clients.clear();  // the dead client's file was damaged
  scene.forgotten();
  scene.start({}, false);
  scene.world.disk.state = Disk::State::full;
  REQUIRE(scene.want(plan::Healed{true}) == errc::state_write);  // it may have been chance
}

}  // namespace

TEST_CASE("a record that the disk refused is written again before a handover", "[failure:18]") {
  Scene scene;
  scene.image().exclusive = false;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.kill_and_start();
  scene.world.disk.state = Disk::State::full;
  REQUIRE(scene.want(plan::Healed{true}) == errc::state_write);  // it may have been chance
  REQUIRE(scene.want(plan::Healed{true}) == errc::state_write);
  REQUIRE(scene.device().alive);
  REQUIRE_FALSE(scene.world.disk.outdated.empty());
  scene.world.disk.state = Disk::State::good;
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  CHECK(scene.world.disk.outdated.empty());
}

TEST_CASE("an agent serves on while the disk refuses the record that alone proves an image without exclusive-lock",
          "[failure:18]") {
  const bool exclusive = GENERATE(false, true);
  Scene scene;
  scene.image().exclusive = exclusive;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.disk.state = Disk::State::full;
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::state_write);
  const auto quiet = scene.loop.run(scene.world.agent.quiesce());
  CHECK(static_cast<bool>(quiet) == exclusive);
  if (exclusive) return;
  CHECK_THAT(quiet.error().text, ContainsSubstring("make room in the state directory"));
  serves_on(scene);
  scene.world.disk.state = Disk::State::good;
  CHECK(scene.loop.run(scene.world.agent.quiesce()));
}

TEST_CASE("an agent serves on while the disk refuses a record with an operator override, served or not",
          "[failure:18]") {
  Dead scene(false);
  start_on_full_disk(scene);
  const bool served = GENERATE(true, false);
  CAPTURE(served);
  scene.world.calls.before_call = [&](const std::string& call) {
    if (!served && call == "acquire lock") scene.world.calls.fail_at = 1;
  };
  REQUIRE(scene.want(plan::Healed{true}) != errc::ok);
  scene.world.calls.before_call = nullptr;
  REQUIRE(scene.device().alive == served);
  REQUIRE_FALSE(scene.world.disk.records.front().proof.operator_override);
  const auto quiet = scene.loop.run(scene.world.agent.quiesce());
  REQUIRE_FALSE(quiet);
  CHECK_THAT(quiet.error().text, ContainsSubstring("acted on an operator override for volume image-1"));
  CHECK_THAT(quiet.error().text, ContainsSubstring("make room in the state directory"));
  scene.world.agent.resume();
  scene.world.disk.state = Disk::State::good;
  CHECK(scene.loop.run(scene.world.agent.quiesce()));
  CHECK(scene.world.disk.records.front().proof.operator_override);
}

TEST_CASE("an agent serves on while a try on an operator override is under way whose record the disk refused",
          "[failure:18]") {
  Dead scene(false);
  start_on_full_disk(scene);
  scene.world.calls.delayed = "acquire lock";
  Gate gate(scene.loop.control(), scene.loop.clock);
  gate.spawn(heal_on_override(scene));
  scene.loop.advance(1s);
  const auto quiet = scene.loop.run(scene.world.agent.quiesce());
  scene.world.agent.resume();
  scene.world.disk.state = Disk::State::good;
  scene.loop.run(gate.close({}));
  REQUIRE_FALSE(quiet);
  CHECK_THAT(quiet.error().text, ContainsSubstring("an operation on it is under way"));
  CHECK(scene.loop.run(scene.world.agent.quiesce()));
}

TEST_CASE("a volume that is unstaged after an undone handover stays unstaged, though the record's rewrite was slow",
          "[failure:18]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.disk.state = Disk::State::full;
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::state_write);
  scene.world.disk.state = Disk::State::good;
  scene.world.calls.delayed = "save record";
  REQUIRE_FALSE(scene.loop.run(scene.world.agent.quiesce()));
  scene.world.agent.resume();
  CHECK(scene.want(kUnstaged) == errc::ok);
  scene.loop.advance(2min);
  CHECK(scene.world.disk.records.empty());
  CHECK_FALSE(scene.world.agent.shell().status(kId));
}

TEST_CASE("an agent serves on while the disk takes no new copy of a record that was damaged", "[failure:20]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.disk.torn_records.insert(kId);
  scene.world.disk.state = Disk::State::full;
  const auto full = scene.loop.run(scene.world.agent.quiesce());
  REQUIRE_FALSE(full);
  CHECK_THAT(full.error().text, ContainsSubstring("only this agent knows the record of volume image-1"));
  CHECK_THAT(full.error().text, ContainsSubstring("make room in the state directory"));
  serves_on(scene);
  scene.world.disk.state = Disk::State::good;
  const auto restored = scene.loop.run(scene.world.agent.quiesce());
  REQUIRE_FALSE(restored);
  CHECK_THAT(restored.error().text, ContainsSubstring("start the handover again"));
  serves_on(scene);
  CHECK(scene.loop.run(scene.world.agent.quiesce()));
}

TEST_CASE("an agent whose record was replaced after the disk refused a newer one tells the replacement",
          "[failure:20]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  const auto backup = scene.world.disk.records.front();
  REQUIRE(scene.want(plan::Attached{"uid-2"}) == errc::ok);
  scene.world.disk.state = Disk::State::full;
  REQUIRE(scene.want(plan::Attached{"uid-3"}) == errc::state_write);
  CHECK(scene.loop.run(scene.world.agent.quiesce()));  // the older record does no harm
  scene.world.agent.resume();
  scene.world.disk.records.front() = backup;
  const auto full = scene.loop.run(scene.world.agent.quiesce());
  REQUIRE_FALSE(full);
  CHECK_THAT(full.error().text, ContainsSubstring("whose file somebody replaced"));
  serves_on(scene);
  scene.world.disk.state = Disk::State::good;
  const auto restored = scene.loop.run(scene.world.agent.quiesce());
  REQUIRE_FALSE(restored);
  CHECK_THAT(restored.error().text, ContainsSubstring("start the handover again"));
  serves_on(scene);
  CHECK(scene.loop.run(scene.world.agent.quiesce()));
}

TEST_CASE("an agent serves on while an operation is under way on a volume whose record is gone") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.kill_and_start();
  scene.world.calls.delayed = "acquire lock";
  Gate gate(scene.loop.control(), scene.loop.clock);
  gate.spawn(heal_on_override(scene));
  scene.loop.advance(1s);
  scene.world.disk.records.clear();
  const auto quiet = scene.loop.run(scene.world.agent.quiesce());
  scene.world.agent.resume();
  scene.loop.run(gate.close({}));
  REQUIRE_FALSE(quiet);
  CHECK_THAT(quiet.error().text, ContainsSubstring("an operation on it is under way"));
}

TEST_CASE("an agent serves on if its disk does not say which records it has", "[failure:20]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.disk.silent = true;
  CHECK_FALSE(scene.loop.run(scene.world.agent.quiesce()));
  serves_on(scene);
}

TEST_CASE("a newer version's record is no lost one, and is handed over as it is", "[failure:21]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.disk.newer_records.insert(kId);
  CHECK(scene.loop.run(scene.world.agent.quiesce()));
}
