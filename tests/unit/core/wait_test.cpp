#include "corbd/core/wait.hpp"

#include <thread>

#include "corbd/core/gate.hpp"
#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

TEST_CASE("an event wakes its waiters in the order they came") {
  test::Loop loop;
  Event event(loop.control(), loop.clock);
  Gate gate(loop.control(), loop.clock);
  std::vector<int> order;
  const auto waiter = [](Event& on, std::vector<int>& into, int number) -> task<> {
    co_await on.wait({});
    into.push_back(number);
  };
  for (int i = 0; i < 3; ++i) gate.spawn(waiter(event, order, i));
  loop.poll();
  CHECK(order.empty());
  event.set();
  loop.poll();
  CHECK(order == std::vector{0, 1, 2});
}

TEST_CASE("a wait ends at its deadline and says so") {
  test::Loop loop;
  Event event(loop.control(), loop.clock);
  const auto before = loop.clock.now();
  CHECK(loop.run(event.wait({before + 5s})) == Waited::deadline);
  CHECK(loop.clock.now() == before + 5s);
  CHECK(event.waiters() == 0);
}

TEST_CASE("a wait whose deadline has passed does not wait") {
  test::Loop loop;
  Event event(loop.control(), loop.clock);
  CHECK(loop.run(event.wait({loop.clock.now()})) == Waited::deadline);
}

TEST_CASE("cancelling a scope ends the waits of the scopes below it") {
  test::Loop loop;
  Event event(loop.control(), loop.clock);
  CancelScope outer;
  CancelScope inner(&outer);
  Gate gate(loop.control(), loop.clock);
  std::vector<Waited> ends;
  const auto waiter = [](Event& on, CancelScope* scope, std::vector<Waited>& into) -> task<> {
    Until until;
    until.scope = scope;
    into.push_back(co_await on.wait(until));
  };
  gate.spawn(waiter(event, &inner, ends));
  gate.spawn(waiter(event, &outer, ends));
  loop.poll();
  outer.cancel();
  loop.poll();
  CHECK(ends == std::vector{Waited::cancelled, Waited::cancelled});
}

TEST_CASE("after a cancellation a task goes on awaiting without a throw") {
  test::Loop loop;
  CancelScope scope;
  scope.cancel();
  Event event(loop.control(), loop.clock);
  const auto work = [](test::Loop& on, Event& never, CancelScope& cancelled) -> task<int> {
    Until until;
    until.scope = &cancelled;
    const Waited first = co_await never.wait(until);
    const Waited second = co_await sleep_until(on.control(), on.clock, on.clock.now() + 1s);
    co_return first == Waited::cancelled&& second == Waited::deadline ? 1 : 0;
  };
  CHECK(loop.run(work(loop, event, scope)) == 1);
}

TEST_CASE("destroying an event cancels the waits on it") {
  test::Loop loop;
  Gate gate(loop.control(), loop.clock);
  auto event = std::make_unique<Event>(loop.control(), loop.clock);
  Waited end = Waited::ready;
  const auto waiter = [](Event& on, Waited& into) -> task<> { into = co_await on.wait({}); };
  gate.spawn(waiter(*event, end));
  loop.poll();
  event.reset();
  loop.poll();
  CHECK(end == Waited::cancelled);
}

TEST_CASE("a promise may be fulfilled from another thread, and only once") {
  test::Loop loop;
  Promise<int> promise(loop.control(), loop.clock);
  auto future = promise.future();
  std::thread([promise] {
    promise.set(7);
    promise.set(8);
  }).join();
  const auto value = loop.run(future.get({}, "a number"));
  REQUIRE(value);
  CHECK(*value == 7);
}

TEST_CASE("a value that arrives after its waiter left is dropped") {
  test::Loop loop;
  Promise<int> promise(loop.control(), loop.clock);
  const auto value = loop.run(promise.future().get({loop.clock.now() + 1s}, "a number"));
  REQUIRE_FALSE(value);
  CHECK(value.error().code == errc::timed_out);
  promise.set(7);
  loop.poll();
}
