#include "corbd/core/async_lock.hpp"
#include "corbd/core/gate.hpp"
#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

struct Trace {
  int inside = 0, most = 0;
  std::vector<int> order;
};

task<> critical(test::Loop& loop, AsyncLock& lock, Trace& trace, int number) {
  auto guard = co_await lock.lock({});
  trace.most = std::max(trace.most, ++trace.inside);
  trace.order.push_back(number);
  co_await sleep_until(loop.control(), loop.clock, loop.clock.now() + 1s);
  --trace.inside;
}

}  // namespace

TEST_CASE("one caller at a time holds the lock across an await, first come, first served") {
  test::Loop loop;
  AsyncLock lock(loop.control(), loop.clock, "the lock");
  Gate gate(loop.control(), loop.clock);
  Trace trace;
  for (int i = 0; i < 5; ++i) gate.spawn(critical(loop, lock, trace, i));
  loop.advance(10s);
  CHECK(trace.most == 1);
  CHECK(trace.order == std::vector{0, 1, 2, 3, 4});
  CHECK_FALSE(lock.held());
}

TEST_CASE("a waiter that gives up leaves the queue to the next") {
  test::Loop loop;
  AsyncLock lock(loop.control(), loop.clock, "the lock");
  Gate gate(loop.control(), loop.clock);
  Trace trace;
  gate.spawn(critical(loop, lock, trace, 0));
  loop.poll();
  const auto early = [](test::Loop& on, AsyncLock& of) -> task<errc> {
    auto guard = co_await of.lock({on.clock.now() + 500ms});
    co_return guard ? errc::ok : guard.error().code;
  };
  CHECK(loop.run(early(loop, lock)) == errc::timed_out);
  gate.spawn(critical(loop, lock, trace, 1));
  loop.advance(5s);
  CHECK(trace.order == std::vector{0, 1});
}

TEST_CASE("more waiters than the bound are refused at once") {
  test::Loop loop;
  AsyncLock lock(loop.control(), loop.clock, "the lock", 1);
  Gate gate(loop.control(), loop.clock);
  Trace trace;
  gate.spawn(critical(loop, lock, trace, 0));
  gate.spawn(critical(loop, lock, trace, 1));
  loop.poll();
  auto refused = loop.run(lock.lock({}));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::exhausted);
  loop.advance(5s);
}

TEST_CASE("slots let in as many as there are") {
  test::Loop loop;
  Slots slots(loop.control(), loop.clock, "a slot", 2);
  Gate gate(loop.control(), loop.clock);
  int inside = 0, most = 0;
  const auto work = [](test::Loop& on, Slots& of, int& now, int& max) -> task<> {
    auto slot = co_await of.take({});
    max = std::max(max, ++now);
    co_await sleep_until(on.control(), on.clock, on.clock.now() + 1s);
    --now;
  };
  for (int i = 0; i < 5; ++i) gate.spawn(work(loop, slots, inside, most));
  loop.advance(10s);
  CHECK(most == 2);
  CHECK(inside == 0);
}

TEST_CASE("a closed gate refuses work and is ready when the last has ended") {
  test::Loop loop;
  Gate gate(loop.control(), loop.clock);
  const auto work = [](test::Loop& on) -> task<> { co_await sleep_until(on.control(), on.clock, on.clock.now() + 3s); };
  gate.spawn(work(loop));
  loop.poll();
  const auto before = loop.clock.now();
  CHECK(loop.run(gate.close({})) == Waited::ready);
  CHECK(loop.clock.now() == before + 3s);
  CHECK_FALSE(gate.spawn(work(loop)));
}
