#include "corbd/ops/health.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <thread>

#include "corbd/core/fd.hpp"
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
  CHECK(ops::healthz(lag.now()).status == 503);
  loop.advance(1s);
  CHECK(lag.now() == 0s);
  CHECK(ops::healthz(lag.now()).status == 200);
  CHECK(lag.worst() == 12s);
  loop.advance(60s);
  CHECK(lag.worst() == 0s);
}

TEST_CASE("alive is below ten seconds of lag") {
  CHECK(ops::healthz(9999ms).status == 200);
  const auto late = ops::healthz(10s);
  CHECK(late.status == 503);
  CHECK_THAT(late.body, ContainsSubstring("10 s"));
}

TEST_CASE("what is not ready is said with one line per reason") {
  CHECK(ops::readyz({}).status == 200);
  const auto response = ops::readyz({{errc::unavailable, "no socket"}, {errc::failed_precondition, "no driver"}});
  CHECK(response.status == 503);
  CHECK(response.body == "no socket\nno driver\n");
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

TEST_CASE("a disk that hangs is told, and holds one thread of the pool only") {
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
