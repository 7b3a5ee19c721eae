#include "corbd/core/helper_pool.hpp"

#include <sys/wait.h>

#include <boost/json/serialize.hpp>

#include "corbd/core/helper_call.hpp"
#include "pool.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace corbd::test;

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

TEST_CASE("an exception in a helper's work is an internal error, and the helper stays usable") {
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

TEST_CASE("all but one of the helpers that a burst needed end after a while of idleness") {
  Pool pool;
  auto first = pool.hold("1");
  auto second = pool.hold("2");
  REQUIRE(pool.starts("1"));
  REQUIRE(pool.starts("2"));
  const int stays = pool.pid_of("1"), spare = pool.pid_of("2");
  for (const auto* name : {"2", "1"}) pool.open(name);
  REQUIRE(first.get());
  REQUIRE(second.get());
  pool.loop.clock.advance(std::chrono::seconds(9));
  REQUIRE(pool.pid() == stays);
  CHECK(is_running(spare));
  pool.loop.clock.advance(std::chrono::seconds(2));
  CHECK(eventually(pool.loop.io, [&] { return !is_running(spare); }));
  pool.loop.clock.advance(std::chrono::seconds(30));
  CHECK(pool.pid() == stays);
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

TEST_CASE("destroying the pool cancels the calls under way") {
  Loop loop;
  Folder folder;
  auto pool = std::make_unique<HelperPool>(loop.control(), loop.clock, helper_child(helper_child_program()));
  HelperRequest request;
  request.what = "hold";
  request.body = {{"op", "test_hold"}, {"started", folder.path() + "/started"}, {"gate", folder.path() + "/gate"}};
  Started<Reply> call(loop.io, pool->call(std::move(request), {}));
  REQUIRE(eventually(loop.io, [&] { return std::filesystem::exists(folder.path() + "/started"); }));
  std::ofstream(folder.path() + "/gate") << "open";
  pool.reset();
  CHECK(call.get().error().code == errc::cancelled);
}

TEST_CASE("a helper inherits none of the agent's descriptors and has a session of its own", "[rule:7]") {
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

TEST_CASE("a thread that may block starts a helper of its own, which ends after the call") {
  HelperRequest request;
  request.what = "work on a";
  const HelperProgram program{helper_child_program(), {"helper"}};
  request.body = {{"op", "test_echo"}, {"value", 7}};
  const auto reply = call_helper(request, program);
  REQUIRE(reply);
  CHECK(reply->at("echo") == 7);
  CHECK_FALSE(is_running(static_cast<int>(reply->at("pid").as_int64())));
  request.body = {{"op", "test_fail"}};
  CHECK(call_helper(request, program).error().code == errc::not_empty);
  request.body = {{"op", "test_crash"}};
  CHECK(call_helper(request, program).error().code == errc::unavailable);
}
