// What a caller sees of plugins that fail, and of a caller that leaves.
#include "corbd/manager/manager.hpp"
#include "world.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("a plugin that says it published but mounted nothing is not believed") {
  World world;
  world.publishes_nothing = true;
  Process process(world);
  const auto refused = process.mount(wanted());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::internal);
  CHECK_THAT(refused.error().text, ContainsSubstring("nothing is mounted at /srv/a"));
  CHECK(world.count("publish") == 1);
  CHECK(world.mounts.empty());
  CHECK(world.claims.empty());
}

TEST_CASE("a failed mount undoes what it did, and reports both errors if it cannot") {
  World world;
  Process process(world);
  bool unstage_fails = false;
  world.plugin_says = [&](const std::string& call) -> std::optional<Error> {
    if (call == "publish") return Error{errc::internal, "no publish today"};
    if (call == "unstage" && unstage_fails) return Error{errc::internal, "no unstage today"};
    return std::nullopt;
  };
  CHECK_THAT(process.mount(wanted()).error().text, ContainsSubstring("no publish today"));
  CHECK(world.mounts.empty());
  CHECK(world.claims.empty());
  unstage_fails = true;
  const auto refused = process.mount(wanted());
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("no publish today"));
  CHECK_THAT(refused.error().text, ContainsSubstring("no unstage today"));
  CHECK(world.claims.contains("/srv/a"));
  world.plugin_says = nullptr;
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.mounts.empty());
}

TEST_CASE("a failed mount undoes only its own calls, so that a foreign mount at the target stays") {
  World world;
  Process process(world);
  world.plugin_says = [&](const std::string& call) -> std::optional<Error> {
    if (call != "stage") return std::nullopt;
    world.mounts["/srv/a"] = "server:/export";
    return Error{errc::internal, "no stage today"};
  };
  CHECK_FALSE(process.mount(wanted()));
  CHECK(world.is_mounted("/srv/a"));
  CHECK(world.count("unpublish") == 0);
  CHECK(world.claims.empty());
}

TEST_CASE("after a reboot a mount of a claimed volume that fails keeps the claim") {
  World world;
  REQUIRE(Process(world).mount(wanted()));
  world.mounts.clear();
  Process process(world);
  world.plugin_says = [](const std::string& call) -> std::optional<Error> {
    if (call == "publish") return Error{errc::internal, "no publish today"};
    return std::nullopt;
  };
  CHECK_FALSE(process.mount(wanted()));
  CHECK(world.mounts.empty());
  CHECK(world.claims.at("/srv/a").again);
  world.plugin_says = nullptr;
  CHECK(process.mount(wanted()));
}

TEST_CASE("a failed mount does not undo a mount that was there before") {
  for (const bool claimed : {false, true}) {
    World world;
    Process process(world);
    REQUIRE(process.mount(wanted()));
    world.claims.at("/srv/a").phase = Claim::Phase::mounting;
    if (!claimed) world.claims.clear();
    world.plugin_says = [](const std::string& call) -> std::optional<Error> {
      if (call == "publish") return Error{errc::internal, "no publish today"};
      return std::nullopt;
    };
    const auto refused = process.mount(wanted());
    REQUIRE_FALSE(refused);
    CHECK(refused.error().text.find("taken back") == std::string::npos);
    CHECK(world.is_mounted("/srv/a"));
    CHECK(world.mounts.size() == 2);
    CHECK(world.count("unpublish") + world.count("unstage") == 0);
    CHECK(world.claims.contains("/srv/a") == claimed);
    world.plugin_says = nullptr;
    CHECK(process.mount(wanted()));
  }
}

TEST_CASE("a cancelled mount leaves nothing mounted that it mounted") {
  World world;
  Process process(world);
  CancelScope scope;
  world.plugin_says = [&](const std::string& call) -> std::optional<Error> {
    if (call != "publish") return std::nullopt;
    scope.cancel();
    return Error{errc::cancelled, "cancelled"};
  };
  const auto refused = process.mount(wanted(), {time_point::max(), &scope});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::cancelled);
  CHECK(world.mounts.empty());
  CHECK(world.claims.empty());
}

TEST_CASE("a call that may pass is made three times, with a growing pause") {
  World world;
  Process process(world);
  const auto code = GENERATE(errc::unavailable, errc::exhausted, errc::timed_out);
  int failures = 2;
  world.plugin_says = [&](const std::string& call) -> std::optional<Error> {
    if (call == "stage" && failures-- > 0) return Error{code, "not now"};
    return std::nullopt;
  };
  CHECK(process.mount(wanted()));
  CHECK(world.count("stage") == 3);
  REQUIRE(process.unmount("/srv/a"));
  failures = 3;
  CHECK(process.mount(wanted()).error().code == code);
  CHECK(world.count("stage") == 6);
}

TEST_CASE("an operation that is pending at the plugin is waited for as long as the caller waits") {
  World world;
  Process process(world);
  int pending = 20;
  world.plugin_says = [&](const std::string& call) -> std::optional<Error> {
    if (call == "stage" && pending-- > 0) return Error{errc::busy, "an operation is pending"};
    return std::nullopt;
  };
  CHECK(process.mount(wanted(), {process.loop().clock.now() + 10min}));
  CHECK(world.count("stage") == 21);
  REQUIRE(process.unmount("/srv/a"));
  pending = 1'000'000;
  CHECK_FALSE(process.mount(wanted(), {process.loop().clock.now() + 1min}));
  CHECK(world.claims.empty());
}
