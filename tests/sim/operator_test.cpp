// What an operator override counts for, and what it does not (rule 2a).
#include "dead.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("an operator override counts in one try, and is forgotten with it") {
  Scene scene;
  scene.image().exclusive = false;
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  scene.world.calls.fail_at = 4;  // the look at its owner
  REQUIRE(scene.want(plan::Healed{true}) != errc::ok);
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK(scene.device().alive);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
}

TEST_CASE("a failed try on an operator override leaves nothing that proves ownership to the next try", "[rule:2a]") {
  Dead scene(false);
  scene.world.agent.clients.clear();  // the dead client's file was damaged
  scene.forgotten();
  scene.start({}, false);
  const std::string in = GENERATE("fence", "break lock", "acquire lock", "kernel reconfigure");
  const bool dies = GENERATE(true, false);
  CAPTURE(in, dies);
  if (dies) {
    scene.world.calls.crash_in = in;
    CHECK_THROWS_AS(scene.world.agent.want(kId, plan::Healed{true}), Crash);
    scene.kill_and_start();
    scene.forgotten();
  } else {
    int seen = 0;
    scene.world.calls.before_call = [&](const std::string& call) {
      // The first fence is of nobody.
      if (call == in && ++seen == (in == "fence" ? 2 : 1)) scene.world.calls.fail_at = 1;
    };
    CHECK(scene.want(plan::Healed{true}) != errc::ok);
    scene.world.calls.before_call = nullptr;
  }
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK_FALSE(scene.device().alive);
  CHECK_FALSE(scene.watched());
  const bool stayed = GENERATE(true, false);
  if (stayed) scene.world.disk.records.front().proof.attachment_uid = "uid-1";
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK_FALSE(scene.world.disk.records.front().proof.operator_override);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

TEST_CASE("an answer of the orchestrator from before a wait is requested again after it") {
  Scene scene;
  scene.image().exclusive = false;
  const auto device = scene.world.ceph_csi.stages(kId, staged_wish(kId).path);
  scene.image().lock_owner.clear();
  scene.world.ceph_csi.ends(device, false);
  scene.loop.advance(1min);
  auto wish = staged_wish(kId);
  wish.attachment = kHere;
  scene.world.attachment = kAway;
  scene.world.calls.under_way.push_back({kId, {"resizing /dev/nbd0", {}}});
  scene.loop.outside_in(2s, [&] { scene.world.calls.under_way.clear(); });
  CHECK(scene.want(wish) != errc::ok);
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("where volumes of the driver are not attached, an operator override counts") {
  Dead scene(false);
  scene.forgotten();
  scene.image().lock_owner.clear();
  scene.start({State::none, "", "attachRequired: false"}, false);
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.error().find("attachRequired: false") != std::string::npos);
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
}

TEST_CASE(
    "an image without exclusive-lock whose link ended waits for an operator override, because a passing client leaves "
    "no trace") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = false;
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  scene.world.cluster.odd_error = EBADE;
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(10ms);
  REQUIRE_FALSE(scene.device().alive);
  scene.world.cluster.odd_error = 0;
  const bool dies = GENERATE(false, true);
  CAPTURE(dies);
  if (dies) scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.error().find("corbd heal image-1 --without-proof") != std::string::npos);
  scene.loop.advance(40s);
  CHECK(scene.world.kernel.answered == 0);
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  scene.loop.advance(40s);
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE("an operator override overrules no other client, no attachment elsewhere and no giving up", "[rule:2a]") {
  Dead scene;
  scene.image().lock_owner.clear();
  const int what = GENERATE(range(0, 7));
  CAPTURE(what);
  Attachment told{State::unknown, "", "no route to host"};
  errc expected = errc::unproven;
  if (what == 0) scene.image().watchers.insert(kOther);
  if (what == 1) scene.image().lock_owner = kOther;
  if (what == 2) told = {State::here, "uid-2", ""};
  if (what == 3 || what == 4) told = kAway;
  if (what == 6) told.maybe_away = true;
  if (what == 4) scene.world.disk.records.front().proof.attachment_uid.clear();
  if (what == 2 || what == 3 || what == 5) expected = errc::lost;
  scene.start(told, false);
  if (what == 5) REQUIRE(scene.want(plan::GivenUp{}) == errc::ok);
  CHECK(scene.want(plan::Healed{true}) == expected);
  CHECK(scene.world.kernel.answered == 0);
  if (what != 5) CHECK_FALSE(scene.device().alive);
}

TEST_CASE("an operator override is advised where it counts, and nowhere else") {
  Dead scene(false);
  scene.image().lock_owner.clear();
  const int which = GENERATE(range(0, 3));
  const Attachment told = which == 0 ? kHere : which == 1 ? Attachment() : kAway;
  scene.start(told, false);
  REQUIRE(scene.want(plan::Healed{}) == errc::unproven);
  const bool advised = scene.error().find("corbd heal image-1 --without-proof") != std::string::npos;
  CHECK(advised == (told.state != State::away));
  CHECK(advised == (scene.error().find("corbd fail image-1 --yes-really") == std::string::npos));
  CHECK((scene.want(plan::Healed{true}) == errc::ok) == advised);
}
