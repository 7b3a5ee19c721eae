#include "corbd/core/helper_pool.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <boost/json/serialize.hpp>
#include <csignal>
#include <fstream>

#include "corbd/core/fd.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"

namespace {

using namespace corbd;
using namespace corbd::test;
namespace json = boost::json;
using Reply = result<json::object>;

struct Pool {
  explicit Pool(std::size_t max_helpers = 4)
      : pool(loop.control(), loop.clock, helper_child(HELPER_CHILD, max_helpers)) {}

  Started<Reply> start(json::object body, std::string busy_file = "", Until until = {}, std::string whose = "") {
    HelperRequest request;
    request.what = "work on a";
    request.body = std::move(body);
    request.owner = {std::move(busy_file), std::move(whose)};
    return Started<Reply>(loop.io, pool.call(std::move(request), until));
  }
  Reply call(json::object body, const std::string& whose = "") { return start(std::move(body), "", {}, whose).get(); }
  int pid() { return static_cast<int>(call({{"op", "test_echo"}, {"value", 1}}).value().at("pid").as_int64()); }

  // A request that lasts until open(name).
  Started<Reply> hold(const std::string& name, const std::string& busy_file = "", Until until = {},
                      const char* op = "test_hold", const std::string& whose = "") {
    return start(
        {{"op", op}, {"started", folder.path() + "/" + name + ".started"}, {"gate", folder.path() + "/" + name}},
        busy_file, until, whose);
  }
  bool has_started(const std::string& name) { return std::filesystem::exists(folder.path() + "/" + name + ".started"); }
  bool starts(const std::string& name) {
    return eventually(loop.io, [&] { return has_started(name); });
  }
  int pid_of(const std::string& name) {
    int pid = 0;
    std::ifstream(folder.path() + "/" + name + ".started") >> pid;
    return pid;
  }
  void open(const std::string& name) { std::ofstream(folder.path() + "/" + name) << "open"; }

  Folder folder;
  Loop loop;
  HelperPool pool;
};

bool is_locked(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

bool is_running(int pid) { return ::kill(pid, 0) == 0; }

}  // namespace

TEST_CASE("a helper answers what its work returns") {
  Pool pool;
  const auto reply = pool.call({{"op", "test_echo"}, {"value", "x"}});
  REQUIRE(reply);
  CHECK(reply->at("echo").as_string() == "x");
}

TEST_CASE("a helper's error arrives with its code and sentence") {
  Pool pool;
  const auto reply = pool.call({{"op", "test_fail"}});
  REQUIRE(!reply);
  CHECK(reply.error().code == errc::not_empty);
  CHECK(reply.error().text == "as asked for");
}

TEST_CASE("an exception of a helper's work is an internal error and the helper goes on") {
  Pool pool;
  const int before = pool.pid();
  CHECK(pool.call({{"op", "test_throw"}}).error().code == errc::internal);
  CHECK(pool.pid() == before);
}

TEST_CASE("a reply beyond the longest message is an error and not a hang") {
  Pool pool;
  CHECK(pool.call({{"op", "test_long"}}).error().code == errc::internal);
}

TEST_CASE("a message of nearly the longest size goes both ways") {
  Pool pool;
  const std::string value(250'000, 'y');
  const auto reply = pool.call({{"op", "test_echo"}, {"value", value}});
  REQUIRE(reply);
  CHECK(reply->at("echo").as_string() == value);
}

TEST_CASE("a request beyond the longest message is refused") {
  Pool pool;
  CHECK(pool.call({{"op", "test_echo"}, {"value", std::string(300'000, 'y')}}).error().code == errc::invalid_argument);
}

TEST_CASE("an idle helper is used again") {
  Pool pool;
  CHECK(pool.pid() == pool.pid());
}

TEST_CASE("no more helpers work at once than allowed, and the others wait in order") {
  Pool pool(2);
  auto first = pool.hold("1");
  auto second = pool.hold("2");
  auto third = pool.hold("3");
  auto fourth = pool.hold("4");
  REQUIRE(pool.starts("1"));
  REQUIRE(pool.starts("2"));
  CHECK(!pool.has_started("3"));
  pool.open("2");
  REQUIRE(second.get());
  REQUIRE(pool.starts("3"));
  CHECK(!pool.has_started("4"));
  for (const auto* name : {"1", "3", "4"}) pool.open(name);
  CHECK(first.get());
  CHECK(third.get());
  CHECK(fourth.get());
}

TEST_CASE("a stuck helper is reported by name and its caller told so") {
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

TEST_CASE("a stuck helper does not count against the others") {
  Pool pool(1);
  auto held = pool.hold("a");
  REQUIRE(pool.starts("a"));
  pool.loop.clock.advance(std::chrono::seconds(31));
  REQUIRE(!held.get());
  CHECK(pool.pid() != pool.pid_of("a"));
  pool.open("a");
}

TEST_CASE("a stuck helper that ends its work after all is let go") {
  Pool pool(1);
  auto held = pool.hold("a");
  REQUIRE(pool.starts("a"));
  pool.loop.clock.advance(std::chrono::seconds(31));
  REQUIRE(!held.get());
  pool.open("a");
  CHECK(eventually(pool.loop.io, [&] { return pool.pool.stuck().empty() && !is_running(pool.pid_of("a")); }));
}

TEST_CASE("a helper killed at work fails its request and the next one gets a new helper") {
  Pool pool(1);
  const int before = pool.pid();
  const auto reply = pool.call({{"op", "test_crash"}});
  REQUIRE(!reply);
  CHECK(reply.error().code == errc::unavailable);
  CHECK_THAT(reply.error().text, ContainsSubstring("the helper died: work on a"));
  CHECK(pool.pid() != before);
}

TEST_CASE("a helper killed while idle costs no request") {
  Pool pool(1);
  const int before = pool.pid();
  ::kill(before, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(before), &info, WEXITED | WNOWAIT);
  CHECK(pool.pid() != before);
}

TEST_CASE("an ended helper is reaped") {
  Pool pool;
  const int pid = pool.pid();
  CHECK(!pool.call({{"op", "test_exit"}}));
  CHECK(eventually(pool.loop.io, [&] { return !is_running(pid); }));
}

TEST_CASE("a program that cannot be started is an error that names it") {
  Loop loop;
  HelperPool pool(loop.control(), loop.clock, helper_child("/nonexistent/helper"));
  HelperRequest request;
  request.what = "work";
  Started<Reply> call(loop.io, pool.call(std::move(request), {}));
  CHECK(call.get().error().code == errc::unavailable);
  CHECK_THAT(call.get().error().text, ContainsSubstring("/nonexistent/helper"));
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

TEST_CASE("a request whose caller left while it waited is never begun") {
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

TEST_CASE("a tool that outlives its helper still holds the busy file") {
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

TEST_CASE("a killed agent's helper finishes its work under the busy file, then ends") {
  Folder folder;
  const std::string busy_file = folder.path() + "/a.busy", gate = folder.path() + "/a";
  std::vector<std::string> words{HELPER_CHILD, "agent", busy_file, gate};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t agent = 0;
  REQUIRE(::posix_spawn(&agent, HELPER_CHILD, nullptr, nullptr, argv.data(), environ) == 0);
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

TEST_CASE("idle helpers end with their pool") {
  int pid = 0;
  {
    Pool pool;
    pid = pool.pid();
  }
  siginfo_t info{};
  CHECK(eventually(
      [&] { return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0 || info.si_pid == pid; }));
  CHECK(info.si_status == 0);
}

TEST_CASE("a call under way when the pool goes is cancelled") {
  Loop loop;
  Folder folder;
  auto pool = std::make_unique<HelperPool>(loop.control(), loop.clock, helper_child(HELPER_CHILD));
  HelperRequest request;
  request.what = "hold";
  request.body = {{"op", "test_hold"}, {"started", folder.path() + "/started"}, {"gate", folder.path() + "/gate"}};
  Started<Reply> call(loop.io, pool->call(std::move(request), {}));
  REQUIRE(eventually(loop.io, [&] { return std::filesystem::exists(folder.path() + "/started"); }));
  std::ofstream(folder.path() + "/gate") << "open";
  pool.reset();
  CHECK(call.get().error().code == errc::cancelled);
}

TEST_CASE("a helper has no descriptor of ours and a session of its own") {
  // One that some library opened without CLOEXEC.
  const Fd careless(::open("/dev/null", O_RDONLY));
  const Fd high(::fcntl(careless.get(), F_DUPFD, 500));
  Pool pool;
  const auto reply = pool.call({{"op", "test_fds"}});
  REQUIRE(reply);
  CHECK(json::serialize(reply->at("fds")) == "[0,1,2,3]");
  CHECK(reply->at("sid") == reply->at("pid"));
}

TEST_CASE("a helper ignores the signals that stop a group") {
  Pool pool;
  const int pid = pool.pid();
  ::kill(pid, SIGTERM);
  ::kill(pid, SIGINT);
  CHECK(pool.pid() == pid);
}

TEST_CASE("work of a cluster that hangs holds up no other cluster's") {
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

TEST_CASE("no more helpers hang for one cluster than are allowed, and whoever comes then is told so at once") {
  Loop loop;
  Folder folder;
  auto config = helper_child(HELPER_CHILD, 2);
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
