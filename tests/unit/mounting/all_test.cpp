// Commands about mounts, with everything real but the plugin.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "host_volume.hpp"
#include "mounter.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"
#include "support/places.hpp"
#include "unit/host/ground.hpp"
#include "unit/manager/scripted_plugin.hpp"
#include "work.hpp"

using namespace corbd;
using manager::Claim;
namespace fs = std::filesystem;

namespace {

struct Host {
  test::Folder folder;
  const std::string base = fs::canonical(folder.path());
  test::ScriptedPlugin plugin{base + "/csi.sock"};
  mounting::Options ask;

  Host() {
    for (const char* name : {"srv", "data", "mounts.d"}) fs::create_directory(base + "/" + name);
    std::ofstream(base + "/ceph.conf") << "[global]\nfsid = f-1\nmon_host = a\n";
    std::ofstream(base + "/keyring") << "[client.admin]\nkey = AQadmin==\n";
    ask.endpoint = "unix://" + base + "/csi.sock";
    ask.root = base + "/root";
    ask.runtime_dir = base + "/run";
    ask.mounts_dir = base + "/mounts.d";
    ask.program = test::helper_child_program();
  }

  /// As a mount of rbd/db left it.
  void claim(const std::string& target, const std::string& as_asked) {
    mounting::MountSpec spec;
    spec.image = "rbd/db";
    spec.dir = as_asked;
    spec.conf = base + "/ceph.conf";
    spec.keyring = base + "/keyring";
    const auto mount = mounting::mount_of(spec);
    REQUIRE(mount);
    Claim claim;
    claim.phase = Claim::Phase::mounted;
    claim.volume = mount->volume;
    claim.volume.plugin = "scripted.csi.example.com";
    claim.usage = mount->usage;
    claim.user = mount->user;
    claim.target = target;
    claim.staging = ask.root + "/staging/db";
    claim.volume_context = mount->volume_context;
    claim.notes = mount->notes;
    asio::io_context io;
    const auto clock = make_real_clock(io.get_executor());
    BlockingPool files(io.get_executor(), *clock, 1);
    const auto claims = manager::make_claims(files, ask.root + "/claims");
    REQUIRE(test::Started<result<>>(io, claims->save(claim)).get());
  }

  /// The folder srv is moved, and a link takes its place.
  void move() const {
    fs::rename(base + "/srv", base + "/data/srv");
    fs::create_directory_symlink(base + "/data/srv", base + "/srv");
  }

  /// Its target; empty: there is none, or another too.
  std::string only_claim() const {
    mounting::Mounter mounter(ask);
    const auto claims = mounter.run(mounter.manager().claims());
    return claims && claims->size() == 1 ? claims->front().target : std::string();
  }

  bool was_called(const std::string& call) {
    const auto calls = plugin.calls();
    return std::ranges::find(calls, call) != calls.end();
  }
};

}  // namespace

TEST_CASE("all mounts and unmounts leave the claim alone whose target's parent became a link, and count a failure") {
  const bool has_file = GENERATE(true, false);
  Host host;
  const std::string target = host.base + "/srv/db";
  fs::create_directory_symlink(host.base + "/srv", host.base + "/link");
  host.claim(target, has_file ? target : host.base + "/link/db");
  if (has_file)
    std::ofstream(host.ask.mounts_dir + "/db.conf") << "image = rbd/db\ndir = " << target << "\nconf = " << host.base
                                                    << "/ceph.conf\nkeyring = " << host.base << "/keyring\n";
  host.move();

  mounting::Mounter mounter(host.ask);
  const auto mounted = mounter.run(mounting::mount_all(mounter, host.ask, mounter.within(30)));
  REQUIRE(mounted);
  CHECK(mounted->failed == 1);
  CHECK(host.only_claim() == target);
  CHECK_FALSE(host.was_called("stage"));
  CHECK_FALSE(host.was_called("publish"));
  const auto unmounted = mounter.run(mounting::unmount_all(mounter, host.ask, mounter.within(1)));
  REQUIRE(unmounted);
  CHECK(unmounted->failed == 1);
  CHECK(host.only_claim() == target);
  CHECK_FALSE(host.was_called("unpublish"));
}

TEST_CASE("a refresh of all leaves out what is not mounted, and asks the plugin nothing about it") {
  Host host;
  host.claim(host.base + "/srv/db", host.base + "/srv/db");
  mounting::Mounter mounter(host.ask);
  const auto refreshed = mounter.run(mounting::refresh_all(mounter, host.ask, mounter.within(30)));
  REQUIRE(refreshed);
  CHECK(refreshed->failed == 0);
  CHECK_FALSE(host.was_called("stage"));
  CHECK_FALSE(host.was_called("publish"));
}

TEST_CASE("a host volume below a folder that became a link gets no second claim, and is not said to be unmounted") {
  const std::string option = GENERATE("noatime", "suid");  // suid is refused, unless the volume is mounted
  Host host;
  const std::string target = host.base + "/srv/7-9", conf = host.base + "/ceph.conf", keyring = host.base + "/keyring";
  host.claim(target, target);
  host.move();
  host.ask.operation = "create";
  host.ask.rules = host.base + "/rules";
  std::ofstream(host.ask.rules) << "users = admin\npools = rbd\nfiles = " << conf << ", " << keyring << "\n";
  ::setenv("DHV_VOLUMES_DIR", (host.base + "/srv").c_str(), 1);
  ::setenv("DHV_VOLUME_ID", "7-9", 1);
  const std::string parameters = R"({"image": "rbd/db", "user": "admin", "conf": ")" + conf + R"(", "keyring": ")" +
                                 keyring + R"(", "options": ")" + option + R"("})";
  ::setenv("DHV_PARAMETERS", parameters.c_str(), 1);
  std::ostringstream said;
  auto* const before = std::cerr.rdbuf(said.rdbuf());
  const int code = mounting::serve_host_volume(host.ask);
  std::cerr.rdbuf(before);
  for (const char* name : {"DHV_VOLUMES_DIR", "DHV_VOLUME_ID", "DHV_PARAMETERS"}) ::unsetenv(name);
  CHECK(code != 0);
  CHECK_THAT(said.str(), ContainsSubstring("goes through a symbolic link"));
  CHECK(host.only_claim() == target);
  CHECK_FALSE(host.was_called("stage"));
}

TEST_CASE("a host volume is deleted while a foreign mount does not answer") {
  if (!test::may_mount()) return;
  const bool claimed = GENERATE(true, false);
  Host host;
  const std::string target = host.base + "/srv/7-9";
  if (claimed) {
    host.claim(target, target);
    fs::create_directory(target);
  }
  const test::DeadMount dead(host.base + "/data");
  if (!dead.mounted()) return;
  host.ask.operation = "delete";
  host.ask.rules = host.base + "/rules";
  ::setenv("DHV_VOLUMES_DIR", (host.base + "/srv").c_str(), 1);
  ::setenv("DHV_VOLUME_ID", "7-9", 1);
  ::setenv("DHV_CREATED_PATH", target.c_str(), 1);
  const int code = mounting::serve_host_volume(host.ask);
  for (const char* name : {"DHV_VOLUMES_DIR", "DHV_VOLUME_ID", "DHV_CREATED_PATH"}) ::unsetenv(name);
  CHECK(code == 0);
  CHECK(host.was_called("unpublish") == claimed);
  CHECK(host.only_claim().empty());
}
