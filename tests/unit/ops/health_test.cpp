#include "corbd/ops/health.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

/// Runs the loop until it is so; the pool's threads need a moment.
template <class Condition>
bool comes(test::Loop& loop, Condition condition) {
  for (int i = 0; i < 20000; ++i) {
    loop.poll();
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

/// What is logged meanwhile.
template <class Work>
std::string logged(Work work) {
  const test::Folder folder;
  const std::string path = folder.path() + "/log";
  const Fd kept(::dup(STDERR_FILENO)), into(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ::dup2(into.get(), STDERR_FILENO);
  work();
  ::dup2(kept.get(), STDERR_FILENO);
  return *read_file(path, 1 << 20);
}

}  // namespace

TEST_CASE("a control thread that keeps up has no lag") {
  test::Loop loop;
  ops::LoopLag lag(loop.clock);
  lag.start();
  loop.advance(90s);
  CHECK(lag.now() == 0s);
  CHECK(lag.worst() == 0s);
}

TEST_CASE("a control thread that stood still shows it at once, and a minute long as the worst") {
  test::Loop loop;
  ops::LoopLag lag(loop.clock);
  lag.start();
  loop.advance(10s);
  loop.clock.advance(13s);  // nothing ran
  CHECK(lag.now() == 12s);
  loop.poll();
  CHECK(lag.now() == 12s);
  loop.advance(1s);
  CHECK(lag.now() == 0s);
  CHECK(lag.worst() == 12s);
  loop.advance(60s);
  CHECK(lag.worst() == 0s);
}

TEST_CASE("readyz has one line for each component that is not ready") {
  CHECK(ops::readyz({}).status == 200);
  ops::NodeFacts facts;
  facts.csi = Error{errc::unavailable, "no socket"};
  facts.drivers[device::Kind::nbd] = Error{errc::failed_precondition, "no driver"};
  const auto response = ops::readyz(ops::judge(facts));
  CHECK(response.status == 503);
  CHECK(response.body == "csi-socket: no socket\nnbd: no driver\n");
  CHECK(ops::healthz(ops::judge(facts)).status == 200);
}

TEST_CASE("an agent that does not count as alive says why on both pages") {
  ops::NodeFacts facts;
  facts.loop_lag = 10s;
  for (const auto& page : {ops::healthz(ops::judge(facts)), ops::readyz(ops::judge(facts))}) {
    CHECK(page.status == 503);
    CHECK_THAT(page.body, ContainsSubstring("10 s late"));
  }
}

TEST_CASE("a watched service is asked periodically, and the last answer counts") {
  test::Loop loop;
  result<> answer = Error{errc::unavailable, "no bus"};
  int asked = 0;
  ops::Watched bus(loop.control(), loop.clock, "the bus", 60s, [&](Until) -> task<result<>> {
    ++asked;
    co_return answer;
  });
  CHECK(bus.now().state == ops::Outsider::State::not_asked);
  bus.start();
  loop.poll();
  CHECK(bus.now().state == ops::Outsider::State::silent);
  CHECK(bus.now().text == "no bus");
  answer = {};
  loop.advance(59s);
  CHECK(asked == 1);
  loop.advance(1s);
  CHECK(bus.now().state == ops::Outsider::State::answers);
  CHECK(bus.now().text.empty());
  loop.run(bus.stop());
}

TEST_CASE("the silence of a service that this host does not use is not reported or logged") {
  test::Loop loop;
  const bool missed = GENERATE(true, false);
  result<> answer = Error{errc::unavailable, "no bus"};
  ops::Watched bus(
      loop.control(), loop.clock, "the bus", 60s, [&](Until) -> task<result<>> { co_return answer; },
      missed ? std::nullopt : std::optional<std::string>("there is no systemd here"));
  const auto lines = logged([&] {
    bus.start();
    loop.poll();
  });
  CHECK((lines.find("node.silent") != std::string::npos) == missed);
  CHECK(bus.now().state == (missed ? ops::Outsider::State::silent : ops::Outsider::State::unused));
  CHECK(bus.now().text == (missed ? "no bus" : "there is no systemd here"));
  answer = {};
  loop.advance(60s);
  CHECK(bus.now().state == ops::Outsider::State::answers);
  loop.run(bus.stop());
}

TEST_CASE("a silent service does not keep the agent from leaving") {
  test::Loop loop;
  Event never(loop.control(), loop.clock);
  ops::Watched bus(loop.control(), loop.clock, "the bus", 60s, [&](Until until) -> task<result<>> {
    const Waited how = co_await never.wait(until);
    co_return wait_error(how, "the bus");
  });
  bus.start();
  loop.poll();
  SECTION("within its time it is silent") {
    loop.advance(5s);
    CHECK(bus.now().state == ops::Outsider::State::silent);
  }
  SECTION("before that it has not been heard") { CHECK(bus.now().state == ops::Outsider::State::not_asked); }
  loop.run(bus.stop());
}

TEST_CASE("a folder is unwritable until a write succeeded, and again when it is gone") {
  test::Loop loop;
  BlockingPool pool(loop.control(), loop.clock, 1);
  auto folder = std::make_unique<test::Folder>();
  ops::Writable writable(loop.control(), loop.clock, pool, folder->path());
  CHECK_FALSE(writable.state());
  writable.start();
  CHECK(comes(loop, [&] { return writable.state().has_value(); }));
  folder.reset();
  loop.advance(10s);
  CHECK(comes(loop, [&] { return !writable.state(); }));
  CHECK(writable.state().error().code == errc::state_write);
  loop.run(writable.stop());
}

TEST_CASE("a hanging disk is reported, and holds only one thread of the pool") {
  test::Loop loop;
  BlockingPool pool(loop.control(), loop.clock, 2);
  test::Folder folder;
  // Opening a FIFO for writing waits for a reader.
  REQUIRE(::mkfifo((folder.path() + "/.writable").c_str(), 0600) == 0);
  ops::Writable writable(loop.control(), loop.clock, pool, folder.path());
  writable.start();
  loop.advance(60s);
  REQUIRE_FALSE(writable.state());
  CHECK(writable.state().error().code == errc::timed_out);
  bool ran = false;
  Promise<void> promise(loop.control(), loop.clock);
  pool.post([promise] { promise.set({}); });
  loop.poll();
  asio::co_spawn(
      loop.io,
      [](Future<void> done, bool& into) -> task<> {
        const auto end = co_await done.get({}, "the other thread");
        into = end.has_value();
      }(promise.future(), ran),
      asio::detached);
  CHECK(comes(loop, [&] { return ran; }));
  const Fd reader(::open((folder.path() + "/.writable").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  CHECK(comes(loop, [&] { return writable.state().has_value(); }));
  loop.run(writable.stop());
}
