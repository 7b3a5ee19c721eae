// A volume that is mounted gets the present key of its user.
#include "corbd/manager/manager.hpp"
#include "world.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

Mount with_key(const std::string& key) {
  Mount mount = wanted();
  mount.secrets["userKey"] = Secret(key);
  return mount;
}

result<bool> refresh(Process& process, Mount mount) {
  return process.loop().run(process.manager().refresh(std::move(mount), {}));
}

}  // namespace

TEST_CASE("a refresh repeats the stage of what is mounted with the present secrets, and publishes nothing") {
  World world;
  Process process(world);
  REQUIRE(process.mount(with_key("old")));
  const auto mounts = world.mounts;
  CHECK(refresh(process, with_key("new")).value() == true);
  CHECK(world.staged_with.secrets.at("userKey").reveal() == "new");
  CHECK(world.count("publish") == 1);
  CHECK(world.mounts == mounts);
}

TEST_CASE("a refresh reaches a mount whose device does not answer, since it may be waiting for its key") {
  World world;
  Process process(world);
  REQUIRE(process.mount(with_key("old")));
  world.special["/srv/a"] = {PathState::At::unknown, world.mounts.at("/srv/a"), "it does not answer", 0};
  CHECK(refresh(process, with_key("new")).value() == true);
  world.special["/srv/a"] = {PathState::At::unknown, "", "the table of mounts cannot be read", 0};
  CHECK(refresh(process, with_key("newer")).error().code == errc::unavailable);
  CHECK(world.staged_with.secrets.at("userKey").reveal() == "new");
}

TEST_CASE("a refresh stages nothing for another's mount, also by a claim of an older version, which does not tell") {
  World world;
  Process process(world);
  REQUIRE(process.mount(with_key("old")));
  if (GENERATE(true, false)) world.claims.at("/srv/a").boot_id = world.claims.at("/srv/a").shown = "";
  world.mounts["/srv/a"] = "dev-of-another";
  const auto claim = world.claims.at("/srv/a").shown;
  CHECK(refresh(process, with_key("new")).value() == false);
  CHECK(world.staged_with.secrets.at("userKey").reveal() == "old");
  CHECK(world.claims.at("/srv/a").shown == claim);
}

TEST_CASE("a refresh mounts nothing that is not mounted") {
  World world;
  Process process(world);
  CHECK(refresh(process, with_key("new")).value() == false);
  REQUIRE(process.mount(with_key("old")));
  SECTION("after a set_down") { REQUIRE(process.set_down("/srv/a")); }
  SECTION("after a reboot") { world.reboot(); }
  SECTION("with a dead device") { world.kill_device("/srv/a"); }
  const auto stages = world.count("stage");
  CHECK(refresh(process, with_key("new")).value() == false);
  CHECK(world.count("stage") == stages);
  CHECK(world.count("publish") == 1);
}

TEST_CASE("a refresh leaves a volume alone whose unmount was begun and did not end") {
  World world;
  Process process(world);
  REQUIRE(process.mount(with_key("old")));
  world.plugin_says = [](const std::string& call) -> std::optional<Error> {
    if (call == "unpublish") return Error{errc::internal, "it is busy"};
    return std::nullopt;
  };
  REQUIRE_FALSE(process.unmount("/srv/a"));
  REQUIRE(world.is_mounted("/srv/a"));
  CHECK(refresh(process, with_key("new")).value() == false);
  CHECK(world.staged_with.secrets.at("userKey").reveal() == "old");
}

TEST_CASE("a refresh that the plugin refuses leaves the mount and its claim as they are") {
  World world;
  Process process(world);
  REQUIRE(process.mount(with_key("old")));
  const auto mounts = world.mounts;
  world.plugin_says = [](const std::string& call) -> std::optional<Error> {
    if (call == "stage") return Error{errc::permission_denied, "no such user"};
    return std::nullopt;
  };
  CHECK(refresh(process, with_key("new")).error().code == errc::permission_denied);
  CHECK(world.mounts == mounts);
  CHECK(world.claims.at("/srv/a").phase == Claim::Phase::mounted);
  CHECK(world.count("unstage") + world.count("unpublish") == 0);
}

TEST_CASE("a refresh gives no key to another volume that is mounted there") {
  World world;
  Process process(world);
  REQUIRE(process.mount(with_key("old")));
  Mount other = with_key("new");
  other.volume.external_id = "vol-2";
  CHECK(refresh(process, other).error().code == errc::already_exists);
  CHECK(world.staged_with.secrets.at("userKey").reveal() == "old");
}
