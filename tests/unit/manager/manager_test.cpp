// What a caller sees of mounts and unmounts: on a machine and a plugin that are played.
#include "corbd/manager/manager.hpp"

#include "world.hpp"

using namespace corbd;
using namespace corbd::test;
using At = PathState::At;

namespace {

std::string staging_of(const Mount& mount) { return manager::staging_path(kRoot, mount.volume, mount.usage); }

std::string staging() {
  Mount mount = wanted();
  mount.volume.name = mount.volume.external_id;
  return staging_of(mount);
}

}  // namespace

TEST_CASE("a mount stages the volume, publishes it at the target, and claims both") {
  World world;
  Process process(world);
  const auto claim = process.mount(wanted());
  REQUIRE(claim);
  CHECK(world.is_mounted("/srv/a"));
  CHECK(world.mounts.at(staging()) == world.mounts.at("/srv/a"));
  CHECK(claim->phase == Claim::Phase::mounted);
  CHECK(claim->volume.plugin == "test.csi.example.com");
  CHECK(world.claims.at("/srv/a").phase == Claim::Phase::mounted);
  REQUIRE_FALSE(process.heard.empty());
  CHECK(process.heard.back().what == manager::Event::What::mounted);
  CHECK(process.heard.back().success);
}

TEST_CASE("an unmount takes everything down, and restores the folder that was at the target") {
  World world;
  Process process(world);
  world.folders.insert("/srv/a");
  world.owners["/srv/a"] = {70, 71};
  REQUIRE(process.mount(wanted()));
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.owners["/srv/a"] == manager::Owner{70, 71});
  CHECK(world.mounts.empty());
  CHECK(world.claims.empty());
  CHECK(world.folders == std::set<std::string>{"/srv/a"});
  CHECK(process.unmount("/srv/a").error().code == errc::not_found);
}

TEST_CASE("a repeated mount succeeds at once") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  const auto stages = world.count("stage"), publishes = world.count("publish");
  REQUIRE(process.mount(wanted()));
  CHECK(world.count("stage") == stages);
  CHECK(world.count("publish") == publishes);
}

TEST_CASE("users of the same usage share one stage, and the last of them unstages") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted("a")));
  REQUIRE(process.mount(wanted("b")));
  CHECK(world.count("stage") == 1);
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.count("unstage") == 0);
  CHECK(world.is_mounted("/srv/b"));
  REQUIRE(process.unmount("/srv/b"));
  CHECK(world.count("unstage") == 1);
  CHECK(world.broken.empty());
}

TEST_CASE("a manager that starts anew knows the other users of a staging path") {
  World world;
  REQUIRE(Process(world).mount(wanted("a")));
  REQUIRE(Process(world).mount(wanted("b")));
  Process later(world);
  REQUIRE(later.unmount("/srv/a"));
  CHECK(world.count("unstage") == 0);
  CHECK(world.is_mounted("/srv/b"));
  CHECK(world.broken.empty());
}

TEST_CASE("another usage of a volume is staged at a path of its own") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted("a")));
  Mount other = wanted("b");
  other.usage.mount_options = {"nodev"};
  REQUIRE(process.mount(other));
  CHECK(world.count("stage") == 2);
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.count("unstage") == 1);
  CHECK(world.is_mounted("/srv/b"));
}

TEST_CASE("a plugin that does not stage is only asked to publish") {
  World world;
  world.stages = false;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  CHECK(world.count("stage") == 0);
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.count("unstage") == 0);
  CHECK(world.mounts.empty());
}

TEST_CASE("a target that another usage or volume has claimed is refused") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  Mount other = wanted("a", "vol-2");
  CHECK(process.mount(other).error().code == errc::already_exists);
  Mount read_only = wanted();
  read_only.usage.read_only = true;
  CHECK(process.mount(read_only).error().code == errc::already_exists);
  CHECK(world.is_mounted("/srv/a"));
}

TEST_CASE("two volumes under one name are refused, because they would share a staging path") {
  World world;
  Process process(world);
  Mount one = wanted("a", "vol-1"), two = wanted("b", "vol-2");
  one.volume.name = two.volume.name = "data";
  REQUIRE(process.mount(one));
  const auto refused = process.mount(two);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::already_exists);
  CHECK_FALSE(world.is_mounted("/srv/b"));
}

TEST_CASE("a target that no mount may cover is refused before anything is done") {
  World world;
  Process process(world);
  const auto code_at = [&](PathState sight) {
    world.special["/srv/a"] = std::move(sight);
    const auto refused = process.mount(wanted());
    CHECK(world.claims.empty());
    CHECK(world.count("stage") + world.count("publish") + world.count("unpublish") == 0);
    return refused ? errc::ok : refused.error().code;
  };
  CHECK(code_at({At::link, "", "", 0}) == errc::invalid_argument);
  CHECK(code_at({At::filled, "", "lost+found", 0}) == errc::failed_precondition);
  CHECK(code_at({At::file, "", "", 0}) == errc::failed_precondition);
  CHECK(code_at({At::mounted, "server:/export", "", 0}) == errc::failed_precondition);
  CHECK(code_at({At::dead, "server:/export", "it is gone", 0}) == errc::failed_precondition);
  CHECK(code_at({At::unknown, "", "no answer in 10 s", 0}) == errc::unavailable);
}

TEST_CASE("a raw block volume is published on a file, not on a folder") {
  World world;
  Process process(world);
  Mount block = wanted();
  block.usage = {};
  block.usage.attachment = AccessType::block;
  world.folders.insert("/srv/a");
  CHECK(process.mount(block).error().code == errc::failed_precondition);
  world.folders.clear();
  CHECK(process.mount(block));
  CHECK(process.unmount("/srv/a"));
  CHECK(world.files.empty());
}

TEST_CASE("an unmount restores the empty file below a raw block mount, with its owner") {
  World world;
  Process process(world);
  Mount block = wanted();
  block.usage = {};
  block.usage.attachment = AccessType::block;
  world.files.insert("/srv/a");
  world.owners["/srv/a"] = {70, 71};
  REQUIRE(process.mount(block));
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.files == std::set<std::string>{"/srv/a"});
  CHECK(world.owners["/srv/a"] == manager::Owner{70, 71});
  CHECK_FALSE(world.folders.contains("/srv/a"));
}

TEST_CASE("an unmount makes nothing in a folder that replaced the one around the target, and says so") {
  World world;
  Process process(world);
  Mount block = wanted();
  block.usage = {};
  block.usage.attachment = AccessType::block;
  world.files.insert("/srv/a");
  REQUIRE(process.mount(block));
  world.holding_folder = {8, 80};
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.files.empty());
  CHECK(world.claims.empty());
  CHECK(std::ranges::any_of(
      process.heard, [](const auto& event) { return event.message.find("is not made again") != std::string::npos; }));
}

namespace {

/// As after `mv /srv /data/srv; ln -s /data/srv /srv` under a mount at /srv/a.
void make_parent_a_link(World& world) {
  world.links["/srv"] = "/data/srv";
  world.mounts["/data/srv/a"] = world.mounts.extract("/srv/a").mapped();
}

}  // namespace

TEST_CASE("a mount whose parent was moved and became a link is still the claim's, and is not said to be gone") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  make_parent_a_link(world);
  world.special["/srv/a"] = {At::unknown, "", "/srv/a goes through a symbolic link", 0, {}, {}, true};
  for (const auto& done : {process.set_down("/srv/a"), process.unmount("/srv/a")}) {
    REQUIRE_FALSE(done);
    CHECK(done.error().code == errc::unavailable);
    CHECK_THAT(done.error().text, ContainsSubstring("goes through a symbolic link"));
  }
  CHECK(world.claims.contains("/srv/a"));
  CHECK(world.count("unpublish") == 0);
}

TEST_CASE("a mount whose parent became a link keeps its claim when it is asked for again, mounted or not") {
  const bool rebooted = GENERATE(false, true);
  World world;
  REQUIRE(Process(world).mount(wanted()));
  make_parent_a_link(world);
  if (rebooted) world.reboot();
  world.special["/srv/a"] = {At::unknown, "", "/srv/a goes through a symbolic link", 0, {}, {}, true};
  world.calls.clear();
  Process process(world);
  const auto named = process.loop().run(process.manager().name_of("/srv/a", {}));
  REQUIRE(named);
  CHECK(*named == "/srv/a");
  const auto again = process.mount(wanted());
  REQUIRE_FALSE(again);
  CHECK_THAT(again.error().text, ContainsSubstring("goes through a symbolic link"));
  CHECK(world.claims.size() == 1);
  CHECK(world.claims.contains("/srv/a"));
  CHECK(world.count("publish") + world.count("unpublish") == 0);
}

TEST_CASE("a folder has one claim of a volume, also under the name that a link gave it since") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  make_parent_a_link(world);
  Mount moved = wanted();
  moved.target = "/data/srv/a";
  const auto second = process.mount(moved);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == errc::already_exists);
  CHECK_THAT(second.error().text, ContainsSubstring("is claimed at /srv/a, which leads to /data/srv/a"));
  CHECK(world.claims.size() == 1);
  moved.target = "/data/srv/b";
  CHECK(process.mount(moved));
}

TEST_CASE("a claim that cannot be resolved keeps no other mount of its volume away") {
  const auto why = GENERATE(Error{errc::invalid_argument, "/home/alice is a symbolic link of user 1000"},
                            Error{errc::permission_denied, "looking at /home/alice: Permission denied"},
                            Error{errc::timed_out, "resolve /home/alice/db: no answer in 10 s"});
  World world;
  Mount hers = wanted();
  hers.target = "/home/alice/db";
  REQUIRE(Process(world).mount(hers));
  world.unresolved.emplace("/home/alice", why);
  const bool rebooted = GENERATE(false, true);
  if (rebooted) world.reboot();
  Process process(world);
  const auto mounted = process.mount(wanted("b"));
  REQUIRE(mounted);
  CHECK(world.is_mounted("/srv/b"));
  CHECK(world.claims.contains("/home/alice/db"));
  CHECK(world.broken.empty());
}

TEST_CASE("after a reboot an unmount behind a link ends the claim and the staging, and asks no plugin about the link") {
  const bool shared = GENERATE(false, true);
  World world;
  world.folders.insert("/srv/a");
  REQUIRE(Process(world).mount(wanted()));
  world.reboot();
  if (shared) REQUIRE(Process(world).mount(wanted("b")));
  world.unresolved.emplace("/srv", Error{errc::invalid_argument, "/srv is a symbolic link of user 1000"});
  world.special["/srv/a"] = {At::unknown, "", "/srv/a goes through a symbolic link", 0, {}, {}, true};
  world.holding_folder = {8, 80};
  world.calls.clear();
  REQUIRE(Process(world).unmount("/srv/a"));
  CHECK_FALSE(world.claims.contains("/srv/a"));
  CHECK(world.count("unpublish") == 0);
  CHECK(world.count("unstage") == (shared ? 0 : 1));
  CHECK(world.is_mounted("/srv/b") == shared);
}

TEST_CASE("a plugin that cannot unpublish what is gone keeps no claim, and one that fails beside a mount keeps it") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  world.plugin_says = [](const std::string& call) {
    return call == "unpublish" ? std::optional(Error{errc::internal, "no mount point specified"}) : std::nullopt;
  };
  CHECK(process.unmount("/srv/a").error().code == errc::internal);
  CHECK(world.claims.contains("/srv/a"));
  world.mounts.erase("/srv/a");
  world.folders.erase("/srv/a");
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.claims.empty());
}

TEST_CASE("a plugin that does not answer keeps the claim, also where nothing is mounted") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  world.mounts.erase("/srv/a");
  world.plugin_says = [](const std::string& call) {
    return call == "unpublish" ? std::optional(Error{errc::in_use, "another call works on it"}) : std::nullopt;
  };
  CHECK_FALSE(process.unmount("/srv/a"));
  CHECK(world.claims.contains("/srv/a"));
}

TEST_CASE("an expansion is retried like every call and returns the size, and calls no plugin if nothing is mounted") {
  World world;
  Process process(world);
  const auto expand = [&] { return process.loop().run(process.manager().expand("/srv/a", {})); };
  CHECK(expand().error().code == errc::not_found);
  REQUIRE(process.mount(wanted()));
  world.image_size = 5;
  int failures = 2;
  world.plugin_says = [&](const std::string& call) -> std::optional<Error> {
    if (call != "expand" || failures-- <= 0) return std::nullopt;
    return Error{errc::unavailable, "the image is not open yet"};
  };
  const auto expanded = expand();
  REQUIRE(expanded);
  CHECK(*expanded == 5);
  CHECK(world.count("expand") == 3);
  failures = 100;
  CHECK(expand().error().code == errc::unavailable);
  CHECK(world.count("expand") == 6);
  CHECK(world.claims.at("/srv/a").phase == Claim::Phase::mounted);
  CHECK(world.broken.empty());
}

TEST_CASE("an unknown staging path does not count as unmounted") {
  World world;
  Process process(world);
  world.special[staging()] = {At::unknown, "", "no answer in 10 s", 0};
  const auto refused = process.mount(wanted());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unavailable);
  CHECK(world.count("stage") == 0);
}

TEST_CASE("an unmount keeps the claim of a mount whose state is unknown") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  world.special["/srv/a"] = {At::unknown, "", "no answer in 10 s", 0};
  CHECK(process.unmount("/srv/a").error().code == errc::unavailable);
  CHECK(world.claims.contains("/srv/a"));
  CHECK(world.count("unpublish") == 0);
}

TEST_CASE("a dead mount is not reused: the volume is taken down and mounted anew") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  const std::string before = world.mounts.at("/srv/a");
  world.kill_device("/srv/a");
  world.kill_device(staging());
  REQUIRE(process.mount(wanted()));
  CHECK(world.mounts.at("/srv/a") != before);
  CHECK(world.mounts.at("/srv/a") == world.mounts.at(staging()));
  CHECK(world.broken.empty());
}

TEST_CASE(
    "a mount that a plugin has below the staging path counts: it is not staged again, and a dead one is replaced") {
  World world;
  world.inside = "/vol-1";
  Process process(world);
  REQUIRE(process.mount(wanted()));
  REQUIRE(process.mount(wanted("b")));
  CHECK(world.count("stage") == 1);
  REQUIRE(process.unmount("/srv/b"));
  const std::string before = world.mounts.at("/srv/a");
  world.kill_device("/srv/a");
  world.kill_device(staging() + world.inside);
  REQUIRE(process.mount(wanted()));
  CHECK(world.mounts.at("/srv/a") != before);
  CHECK(world.broken.empty());
}

TEST_CASE("a dead staging path under another user is left alone, and the error names the user") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted("a")));
  world.kill_device("/srv/a");
  world.kill_device(staging());
  const auto refused = process.mount(wanted("b"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK_THAT(refused.error().text, ContainsSubstring("/srv/a"));
  CHECK(world.count("unstage") == 0);
}

TEST_CASE("a target in use is not unmounted, and the error names who uses it") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  world.users["/srv/a"] = {"postgres (4711)"};
  const auto refused = process.unmount("/srv/a");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::in_use);
  CHECK_THAT(refused.error().text, ContainsSubstring("postgres (4711)"));
  CHECK(world.count("unpublish") == 0);
  CHECK(world.claims.at("/srv/a").phase == Claim::Phase::mounted);
}

TEST_CASE("another program's mount over ours is not unmounted") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  world.special["/srv/a"] = {At::mounted, "server:/export", "", 0};
  CHECK(process.unmount("/srv/a").error().code == errc::failed_precondition);
  CHECK(world.count("unpublish") == 0);
}

TEST_CASE("a foreign mount at the target after a reboot is neither unmounted, nor set down, nor mounted over") {
  const bool block = GENERATE(false, true);
  World world;
  Mount mount = wanted();
  if (block) mount.usage.attachment = AccessType::block;
  REQUIRE(Process(world).mount(mount));
  world.reboot();
  world.special["/srv/a"] = {At::mounted, "/dev/sdb1 (8:17)", "", 0};
  Process process(world);
  CHECK(process.unmount("/srv/a").error().code == errc::failed_precondition);
  CHECK(process.set_down("/srv/a"));
  CHECK(process.mount(mount).error().code == errc::failed_precondition);
  CHECK_FALSE(*process.loop().run(process.manager().has_mount("/srv/a", {})));
  CHECK(process.loop().run(process.manager().list({}))->at(0).another);
  CHECK(world.count("unpublish") == 0);
  CHECK(world.count("stage") == 1);
  CHECK(world.claims.at("/srv/a").phase == Claim::Phase::mounted);
  world.special.clear();
  CHECK(process.mount(mount));
  CHECK(process.unmount("/srv/a"));
}

TEST_CASE("an older version's claim suffices for an unmount, and a mount adds what it lacks") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  const Claim whole = world.claims.at("/srv/a");
  CHECK(whole.boot_id == "boot-1");
  CHECK(whole.shown == world.mounts.at("/srv/a"));
  world.claims.at("/srv/a").boot_id = world.claims.at("/srv/a").shown = "";
  REQUIRE(process.mount(wanted()));
  CHECK(world.claims.at("/srv/a").boot_id == whole.boot_id);
  CHECK(world.claims.at("/srv/a").shown == whole.shown);
  world.claims.at("/srv/a").boot_id = world.claims.at("/srv/a").shown = "";
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.mounts.empty());
}

TEST_CASE("files that lie below an unmounted target are never given to a plugin to remove") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  world.mounts.clear();  // a reboot, and then somebody wrote there
  world.special["/srv/a"] = {At::filled, "", "precious", 0};
  REQUIRE(process.unmount("/srv/a"));
  CHECK(world.count("unpublish") == 0);
  CHECK(world.claims.empty());
}

TEST_CASE("a plugin gets no volume of a plugin with another name") {
  World world;
  REQUIRE(Process(world).mount(wanted()));
  world.plugin_name = "other.csi.example.com";
  Process process(world);
  CHECK(process.unmount("/srv/a").error().code == errc::failed_precondition);
  CHECK(world.count("unpublish") == 0);
}

TEST_CASE("has_mount is true only for a live mount, and an error if that is unknown") {
  World world;
  Process process(world);
  const auto ask = [&] { return process.loop().run(process.manager().has_mount("/srv/a", {})); };
  CHECK_FALSE(*ask());
  REQUIRE(process.mount(wanted()));
  CHECK(*ask());
  world.kill_device("/srv/a");
  CHECK_FALSE(*ask());
  world.special["/srv/a"] = {At::unknown, "", "no answer", 0};
  CHECK_FALSE(ask());
}

TEST_CASE("a mount that is set down keeps its claim, and does not count as a user of the staging path") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted("a")));
  REQUIRE(process.mount(wanted("b")));
  REQUIRE(process.set_down("/srv/a"));
  REQUIRE(process.set_down("/srv/b"));
  CHECK(world.mounts.empty());
  CHECK(world.broken.empty());
  for (const char* target : {"/srv/a", "/srv/b"}) CHECK(world.claims.at(target).again);
  REQUIRE(process.mount(wanted("a")));
  CHECK_FALSE(world.claims.at("/srv/a").again);
  REQUIRE(process.unmount("/srv/b"));
  CHECK(world.is_mounted("/srv/a"));
  CHECK(world.claims.size() == 1);
}

TEST_CASE("a mount in use is not set down, and its claim stays as it was") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  world.users["/srv/a"] = {"postgres (4711)"};
  CHECK(process.set_down("/srv/a").error().code == errc::in_use);
  CHECK(world.claims.at("/srv/a").phase == Claim::Phase::mounted);
  CHECK(world.is_mounted("/srv/a"));
}

TEST_CASE("setting all mounts down forgets one whose unmount had begun") {
  World world;
  Process process(world);
  REQUIRE(process.mount(wanted()));
  world.claims.at("/srv/a").phase = Claim::Phase::unmounting;
  REQUIRE(process.set_down("/srv/a"));
  CHECK(world.claims.empty());
}

TEST_CASE("one volume id with other attributes is another volume, and is refused at every target") {
  World world;
  Process process(world);
  Mount first = wanted("a");
  first.volume_context = {{"clusterID", "one"}, {"pool", "rbd"}};
  REQUIRE(process.mount(first));
  Mount second = first;
  second.volume_context["clusterID"] = "two";
  for (const char* target : {"/srv/a", "/srv/b"}) {
    second.target = target;
    const auto refused = process.mount(second);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::already_exists);
    CHECK_THAT(refused.error().text, ContainsSubstring("at /srv/a with clusterID one") &&
                                         ContainsSubstring("with clusterID two") && ContainsSubstring("Unmount"));
  }
  CHECK_FALSE(world.is_mounted("/srv/b"));
  CHECK(world.claims.size() == 1);
  CHECK(world.is_mounted("/srv/a"));
}

TEST_CASE("a claim ends only if its target is known to have no mount") {
  World world;
  Process process(world);
  const auto end = [&] { return process.loop().run(process.manager().end_unmounted("/srv/a", {})); };
  REQUIRE(process.mount(wanted()));
  CHECK(end().error().code == errc::failed_precondition);
  world.special["/srv/a"] = {At::unknown, "", "no answer", 0};
  CHECK(end().error().code == errc::unavailable);
  world.special.clear();
  CHECK(world.count("unpublish") == 0);
  CHECK(world.claims.at("/srv/a").phase == Claim::Phase::mounted);
  world.mounts.clear();
  CHECK(end());
  CHECK(world.claims.empty());
}
