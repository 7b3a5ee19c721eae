// Helpers that hang, or work on after whoever asked has left: what they hold up, and what they hold.
#include <spawn.h>
#include <sys/wait.h>

#include <boost/json/serialize.hpp>

#include "pool.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace corbd::test;

TEST_CASE("a stuck helper is logged by name, and its caller gets an error") {
  Pool pool(1);
  auto held = pool.hold("a");
  REQUIRE(pool.starts("a"));
  pool.loop.clock.advance(std::chrono::seconds(31));
  const auto& reply = held.get();
  REQUIRE(!reply);
  CHECK(reply.error().code == errc::unavailable);
  CHECK_THAT(reply.error().text, ContainsSubstring("work on a"));
  REQUIRE(pool.pool.stuck().size() == 1);
  CHECK(pool.pool.stuck().front().pid == pool.pid_of("a"));
  pool.open("a");
}

TEST_CASE("a stuck helper does not count against the others", "[failure:46]") {
  Pool pool(1);
  auto held = pool.hold("a");
  REQUIRE(pool.starts("a"));
  pool.loop.clock.advance(std::chrono::seconds(31));
  REQUIRE(!held.get());
  CHECK(pool.pid() != pool.pid_of("a"));
  pool.open("a");
}

TEST_CASE("a stuck helper that finishes its work after all is ended") {
  Pool pool(1);
  auto held = pool.hold("a");
  REQUIRE(pool.starts("a"));
  pool.loop.clock.advance(std::chrono::seconds(31));
  REQUIRE(!held.get());
  pool.open("a");
  CHECK(eventually(pool.loop.io, [&] { return pool.pool.stuck().empty() && !is_running(pool.pid_of("a")); }));
}

TEST_CASE("a caller that leaves early lets the helper finish and be used again") {
  Pool pool(1);
  CancelScope scope;
  Until until;
  until.scope = &scope;
  auto held = pool.hold("a", "", until);
  REQUIRE(pool.starts("a"));
  scope.cancel();
  CHECK(held.get().error().code == errc::cancelled);
  pool.open("a");
  CHECK(pool.pid() == pool.pid_of("a"));
}

TEST_CASE("a request whose caller left while it was queued never starts") {
  Pool pool(1);
  auto first = pool.hold("a");
  REQUIRE(pool.starts("a"));
  CancelScope scope;
  Until until;
  until.scope = &scope;
  auto second = pool.hold("b", "", until);
  scope.cancel();
  CHECK(second.get().error().code == errc::cancelled);
  pool.open("a");
  REQUIRE(first.get());
  pool.pid();
  CHECK(!pool.has_started("b"));
}

TEST_CASE("the busy file is held during the work and stays, unlocked, after it") {
  Pool pool;
  const std::string busy_file = pool.folder.path() + "/a.busy";
  auto held = pool.hold("a", busy_file);
  REQUIRE(pool.starts("a"));
  CHECK(is_locked(busy_file));
  pool.open("a");
  REQUIRE(held.get());
  CHECK(std::filesystem::exists(busy_file));
  CHECK(!is_locked(busy_file));
}

TEST_CASE("a second request on a busy file is refused as busy") {
  Pool pool;
  const std::string busy_file = pool.folder.path() + "/a.busy";
  auto held = pool.hold("a", busy_file);
  REQUIRE(pool.starts("a"));
  CHECK(pool.start({{"op", "test_echo"}, {"value", 1}}, busy_file).get().error().code == errc::busy);
  pool.open("a");
  CHECK(held.get());
}

TEST_CASE("a tool that outlives its helper still holds the busy file", "[failure:46]") {
  Pool pool;
  const std::string busy_file = pool.folder.path() + "/a.busy";
  auto held = pool.hold("a", busy_file, {}, "test_tool");
  REQUIRE(pool.starts("a"));
  REQUIRE(eventually([&] { return std::filesystem::exists(pool.folder.path() + "/a.tool"); }));
  ::kill(pool.pid_of("a"), SIGKILL);
  REQUIRE(held.get().error().code == errc::unavailable);
  CHECK(is_locked(busy_file));
  pool.open("a");
  CHECK(eventually([&] { return !is_locked(busy_file); }));
}

TEST_CASE("a killed agent's helper finishes its work under the busy file, then ends", "[rule:7]") {
  Folder folder;
  const std::string busy_file = folder.path() + "/a.busy", gate = folder.path() + "/a";
  std::vector<std::string> words{helper_child_program(), "agent", busy_file, gate};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t agent = 0;
  REQUIRE(::posix_spawn(&agent, helper_child_program().c_str(), nullptr, nullptr, argv.data(), environ) == 0);
  const bool started = eventually([&] { return std::filesystem::exists(gate + ".started"); });
  ::kill(agent, SIGKILL);
  ::waitpid(agent, nullptr, 0);
  REQUIRE(started);
  int helper = 0;
  std::ifstream(gate + ".started") >> helper;
  CHECK(is_locked(busy_file));
  std::ofstream(gate) << "open";
  CHECK(eventually([&] { return !is_locked(busy_file); }));
  CHECK(eventually([&] { return !std::filesystem::exists("/proc/" + std::to_string(helper) + "/fd/3"); }));
}

TEST_CASE("a helper begins nothing once its agent has gone", "[failure:162]") {
  const Folder folder;
  const std::string busy_file = folder.path() + "/a.busy", started = folder.path() + "/a.started";
  Fd busy(::open(busy_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::flock(busy.get(), LOCK_EX | LOCK_NB) == 0);
  int helper = 0;
  {
    Pool pool;
    helper = pool.pid();
    pool.start({{"op", "test_hold"}, {"started", started}, {"gate", folder.path() + "/a"}}, busy_file);
  }
  busy.reset();
  CHECK(::waitpid(helper, nullptr, 0) == helper);
  CHECK_FALSE(std::filesystem::exists(started));
}

TEST_CASE("a hanging cluster's work does not hold up another cluster's", "[rule:24]") {
  Pool pool(2);
  std::vector<Started<Reply>> hang;
  for (int i = 0; i < 10; ++i) hang.push_back(pool.hold("h" + std::to_string(i), "", {}, "test_hold", "cluster a"));
  REQUIRE(pool.starts("h1"));
  CHECK(pool.call({{"op", "test_echo"}, {"value", 1}}, "cluster b"));
  CHECK(pool.call({{"op", "test_echo"}, {"value", 1}}, "cluster b"));
  CHECK_FALSE(pool.has_started("h2"));
  for (int i = 0; i < 10; ++i) pool.open("h" + std::to_string(i));
  for (auto& one : hang) CHECK(one.get());
}

TEST_CASE("at most the allowed number of helpers hang for one cluster; further calls fail at once") {
  Loop loop;
  Folder folder;
  auto config = helper_child(helper_child_program(), 2);
  config.max_stuck = 3;
  HelperPool pool(loop.control(), loop.clock, config);
  const auto ask = [&](json::object body, const std::string& whose) {
    HelperRequest request;
    request.what = "unmount /a";
    request.body = std::move(body);
    request.owner = {"", whose};
    return Started<Reply>(loop.io, pool.call(std::move(request), {}));
  };
  const auto gate = folder.path() + "/gate";
  for (int i = 0; i < 3; ++i) {
    const auto started = folder.path() + "/" + std::to_string(i);
    auto held = ask({{"op", "test_hold"}, {"started", started}, {"gate", gate}}, "cluster a");
    REQUIRE(eventually(loop.io, [&] { return std::filesystem::exists(started); }));
    loop.clock.advance(std::chrono::seconds(31));
    CHECK(held.get().error().code == errc::unavailable);
  }
  const json::object echo{{"op", "test_echo"}, {"value", 1}};
  const auto refused = ask(echo, "cluster a").get();
  CHECK(refused.error().code == errc::unavailable);
  CHECK_THAT(refused.error().text, ContainsSubstring("3 helpers hang for cluster a, the first in 'unmount /a'"));
  CHECK(ask(echo, "cluster b").get());
  std::ofstream(gate) << "open";
  CHECK(eventually(loop.io, [&] { return pool.stuck().empty(); }));
  CHECK(ask(echo, "cluster a").get());
}
