// Whether an rbd-nbd that runs acknowledges writes out of a cache.
#include <filesystem>
#include <fstream>

#include "corbd/host/daemons.hpp"
#include "ops.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using host::DaemonSeen;
using host::is_uncached;
using host::started_at;

TEST_CASE("rbd-nbd's command line decides over its cache, and its user's ceph.conf otherwise", "[failure:165]") {
  struct Case {
    std::vector<std::string> more;
    std::string conf;
    bool off;
  };
  const auto [more, conf, off] = GENERATE(values<Case>({
      {{"--rbd_cache=false"}, "[global]\nrbd_cache = true\n", true},
      {{"--rbd-cache=0"}, "", true},
      {{"--rbd-cache", "false"}, "[global]\nrbd_cache = false\n", false},
      {{"--rbd-cache=False"}, "[global]\nrbd_cache = false\n", false},
      {{"--rbd_cache=true"}, "[global]\nrbd_cache = false\n", false},
      {{"--rbd_cache=false", "--rbd_cache=true"}, "", false},
      {{"--rbd_cache=false,io-timeout=330"}, "[global]\nrbd_cache = false\n", false},
      {{}, "[global]\nrbd_cache = false\n", true},
      {{}, "[global]\nrbd cache = False\n[client]\nrbd_cache = 0\n", true},
      {{}, "[global]\nrbd_cache = false\n[client.app]\nrbd_cache = true\n", false},
      {{}, "[client.other]\nrbd_cache = false\n", false},
      {{}, "[global]\nrbd-cache = false\n", false},
      {{}, "[global]\nrbd__cache = false\n", false},
      {{}, "[ global ]\nrbd_cache = false\n", false},
      {{}, "[global]\nrbd_cache = no\n", false},
      {{}, "", false},
      {{"--rbd_cache_policy=writethrough"}, "", true},
      {{"--rbd-cache-max-dirty", "0"}, "", true},
      {{"--rbd_cache=true", "--rbd_cache_max_dirty=0"}, "", true},
      {{}, "[client]\nrbd cache policy = writethrough\n", true},
      {{}, "[client]\nrbd_cache_max_dirty = 0\n[client.app]\nrbd_cache_max_dirty = 1\n", false},
      {{"--rbd_cache_policy=writeback"}, "[global]\nrbd_cache_policy = writethrough\n", false},
      {{"--rbd_cache_max_dirty=0", "--rbd_cache_max_dirty=1M"}, "", false},
      {{}, "[global]\nrbd_cache_writethrough_until_flush = true\n", false},
  }));
  CAPTURE(more, conf);
  DaemonSeen daemon;
  daemon.arguments = {"rbd-nbd", "--id", "app", "-m", "m1", "map", "rbd/a"};
  daemon.arguments.insert(daemon.arguments.end(), more.begin(), more.end());
  daemon.conf = conf;
  REQUIRE(is_uncached(daemon));
  CHECK(*is_uncached(daemon) == off);
}

TEST_CASE("rbd-nbd's cache is unknown if it may use another file or section, or one that cannot be read") {
  DaemonSeen daemon;
  daemon.arguments = {"rbd-nbd", "--id=app", "map", "rbd/a"};
  daemon.conf = "[global]\nrbd_cache = false\n";
  REQUIRE(is_uncached(daemon));
  SECTION("another file, by option") { daemon.arguments.insert(daemon.arguments.end(), {"-c", "/other"}); }
  SECTION("another cluster") { daemon.arguments.push_back("--cluster=other"); }
  SECTION("no user") { daemon.arguments.erase(daemon.arguments.begin() + 1); }
  SECTION("another file, by environment") { daemon.environment = std::vector<std::string>{"A=b", "CEPH_CONF=/other"}; }
  SECTION("arguments, by environment") { daemon.environment = std::vector<std::string>{"CEPH_ARGS=--rbd-cache=true"}; }
  SECTION("an environment that cannot be read") { daemon.environment = Error{errc::unavailable, "no"}; }
  SECTION("a file that cannot be read") { daemon.conf = Error{errc::unavailable, "no"}; }
  SECTION("a cache on a disk") { *daemon.conf += "rbd_plugins = pwl_cache\n"; }
  SECTION("a cache on a disk, by option") { daemon.arguments.push_back("--rbd_plugins=pwl_cache"); }
  SECTION("a file that is none") { daemon.conf = "rbd_cache"; }
  CHECK_FALSE(is_uncached(daemon));
}

TEST_CASE("when a process was started is read behind its name, whatever that is") {
  const std::string system = "cpu 1 2\nbtime 1000\nprocesses 3\n";
  const std::string after = " S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
  const auto at = [](long long seconds) {
    return std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
  };
  CHECK(started_at("77 (rbd-nbd)" + after, system, 100) == at(1123));
  CHECK(started_at("77 (a) b) S" + after.substr(2), system, 100) == at(1123));
  CHECK_FALSE(started_at("77 (rbd-nbd) S 1", system, 100));
  CHECK_FALSE(started_at("77 (rbd-nbd)" + after, "cpu 1 2\n", 100));
}

TEST_CASE("an rbd-nbd without a cache is named only if it alone has served for longer than another's watch may last",
          "[failure:166]") {
  const test::Folder folder;
  const auto put = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path file(folder.path() + "/proc/" + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  };
  const std::string line("rbd-nbd\0--rbd_cache=false\0map", 30);
  put("77/cmdline", line);
  put("77/stat", "77 (rbd-nbd) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 10000 0 0");
  put("uptime", "200.51 300.00\n");
  const auto named = [&](const std::vector<int>& serving) {
    return host::ops::uncached_process(folder.path(), serving);
  };
  CHECK(named({77}) == "77 10000");
  CHECK(named({77, 78}).empty());
  CHECK(named({}).empty());
  put("uptime", "159.99 300.00\n");
  CHECK(named({77}).empty());
  put("uptime", "200.51 300.00\n");
  put("77/cmdline", "rbd-nbd");
  CHECK(named({77}).empty());
}
