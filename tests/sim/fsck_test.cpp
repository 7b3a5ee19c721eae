// Checks that an operator asks for: the next stage makes them, right before the mount.
#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::Scene;
using namespace std::chrono_literals;
using State = volume::ManualCheck::State;

namespace {

struct Damaged : Scene {
  Damaged() {
    filled();
    image().beyond_repair = true;
  }
  result<volume::ManualCheck> ask(bool repair, const std::string& token = "1") {
    return world.agent.shell().check_by_hand(kId, token, repair);
  }
  plan::Staged refusing() {
    auto wish = test::staged();
    wish.source.on_damage = plan::OnDamage::refuse;
    return wish;
  }
};

}  // namespace

TEST_CASE("a repair that an operator asked for is made by the next stage, which then mounts", "[failure:47]") {
  Damaged scene;
  const auto wish = GENERATE(true, false) ? scene.refusing() : test::staged();
  REQUIRE(scene.want(wish) == errc::failed_precondition);
  CHECK(scene.ask(true)->state == State::waits);
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.image().inspections == 1);
  const auto told = scene.ask(true);
  REQUIRE(told);
  CHECK(told->state == State::done);
  REQUIRE(told->found);
  CHECK((told->found->clean && told->found->command == "repair"));
  CHECK(scene.want(test::kUnstaged) == errc::ok);
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.image().inspections == 1);
}

TEST_CASE("a check without repair tells what it found, changes nothing, and the stage is refused as before",
          "[failure:47]") {
  Damaged scene;
  scene.ask(false);
  CHECK(scene.want(scene.refusing()) == errc::failed_precondition);
  CHECK(scene.image().beyond_repair);
  const auto told = scene.ask(false);
  REQUIRE((told && told->state == State::done && told->found));
  CHECK_FALSE(told->found->clean);
  CHECK(told->found->report == "two errors");
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a repair that nobody waits for any more is not made", "[failure:47]") {
  Damaged scene;
  scene.ask(true);
  scene.loop.advance(10s);
  scene.ask(true);
  scene.loop.advance(16s);
  CHECK(scene.want(scene.refusing()) == errc::failed_precondition);
  CHECK(scene.image().inspections == 0);
  CHECK(scene.image().beyond_repair);
}

TEST_CASE("a check of a mounted filesystem is refused, with its mounts and pods", "[failure:47]") {
  Scene scene;
  const auto wish = test::staged();
  REQUIRE(scene.want(wish) == errc::ok);
  auto published = test::published(wish, "/pods/1");
  published.pod = "shop/db-0";
  REQUIRE(scene.want(published) == errc::ok);
  const auto told = scene.world.agent.shell().check_by_hand(kId, "1", true);
  REQUIRE_FALSE(told);
  CHECK(told.error().code == errc::in_use);
  CHECK_THAT(told.error().text, ContainsSubstring(test::kPath + "/" + kId) && ContainsSubstring("/pods/1") &&
                                    ContainsSubstring("shop/db-0"));
  CHECK(scene.image().inspections == 0);
}

TEST_CASE("a volume whose mount somebody removed is checked by its next stage", "[failure:47]") {
  Damaged scene;
  scene.image().beyond_repair = false;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.world.kernel.mounts.clear();
  CHECK(scene.ask(false)->state == State::waits);
  CHECK(scene.want(test::staged()) == errc::ok);
  CHECK(scene.image().inspections == 1);
  CHECK(scene.ask(false)->state == State::done);
}

TEST_CASE("a raw block volume is not checked", "[failure:47]") {
  Scene scene;
  REQUIRE(scene.want(test::block_wish()) == errc::ok);
  const auto told = scene.world.agent.shell().check_by_hand(kId, "1", true);
  REQUIRE_FALSE(told);
  CHECK(told.error().code == errc::failed_precondition);
}

TEST_CASE("a second command does not repair what the first only wanted checked", "[failure:47]") {
  Damaged scene;
  scene.ask(false, "1");
  CHECK(scene.want(scene.refusing()) == errc::failed_precondition);
  CHECK(scene.ask(true, "2")->state == State::waits);
  CHECK(scene.ask(true, "2")->repair);
  CHECK(scene.want(scene.refusing()) == errc::ok);
}

TEST_CASE("two commands that want the same check wait for one, and each gets its result", "[failure:47]") {
  Damaged scene;
  scene.ask(true, "1");
  CHECK(scene.ask(true, "2")->state == State::waits);
  CHECK(scene.want(scene.refusing()) == errc::ok);
  CHECK(scene.image().inspections == 1);
  for (const auto* token : {"2", "1"}) {
    const auto told = scene.ask(true, token);
    REQUIRE((told && told->state == State::done && told->found));
    CHECK(told->found->clean);
  }
}

TEST_CASE("a command that wants a repair is refused while another waits for a check without one", "[failure:47]") {
  Damaged scene;
  scene.ask(false, "1");
  const auto refused = scene.ask(true, "2");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::busy);
  CHECK(scene.ask(false, "1")->state == State::waits);
  scene.loop.advance(16s);
  CHECK(scene.ask(true, "2")->repair);
}

TEST_CASE("a command without a repair takes back the repair that an earlier one asked for", "[failure:47]") {
  Damaged scene;
  scene.ask(true, "1");
  CHECK_FALSE(scene.ask(false, "2")->repair);
  CHECK(scene.ask(true, "1").error().code == errc::busy);
  CHECK(scene.want(scene.refusing()) == errc::failed_precondition);
  CHECK(scene.image().beyond_repair);
  CHECK_FALSE(scene.ask(false, "2")->found->clean);
}

TEST_CASE("a command whose repair was taken back gets no result of the check that was made instead", "[failure:47]") {
  Damaged scene;
  scene.ask(true, "1");
  scene.ask(false, "2");
  scene.want(scene.refusing());
  CHECK(scene.ask(true, "1")->state == State::waits);
  CHECK(scene.ask(true, "1")->repair);
}

TEST_CASE("a command that wants another check than the one under way is told so", "[failure:47]") {
  Damaged scene;
  const bool repair = GENERATE(true, false);
  scene.ask(repair, "1");
  result<volume::ManualCheck> meanwhile;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "inspect") meanwhile = scene.ask(!repair, "2");
  };
  scene.want(scene.refusing());
  CHECK(meanwhile.error().code == errc::busy);
  CHECK(scene.ask(repair, "1")->state == State::done);
}

TEST_CASE("a checker without an answer keeps the stage from going on with the device", "[failure:47]") {
  Damaged scene;
  scene.ask(true);
  scene.world.calls.fail_after_at = 0;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "inspect") scene.world.calls.fail_at = 1;
  };
  CHECK(scene.want(scene.refusing()) == errc::unavailable);
  CHECK(scene.world.kernel.mounts.empty());
  const auto told = scene.ask(true);
  REQUIRE((told && told->state == State::done));
  CHECK_FALSE(told->found);
}
