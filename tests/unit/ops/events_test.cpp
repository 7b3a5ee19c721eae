#include "events.hpp"

#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd;
using ops::Events;
using namespace std::chrono_literals;

namespace {

volume::Change change(int number) {
  volume::Change made;
  made.volume_id = std::to_string(number);
  return made;
}

std::vector<std::string> ids(const Events::Page& page) {
  std::vector<std::string> out;
  for (const auto& one : page.changes) out.push_back(one.volume_id);
  return out;
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("events after a number come oldest first, no more than asked for") {
  test::Loop loop;
  Events events(loop.control(), loop.clock, 10);
  for (int i = 1; i <= 5; ++i) events.push(change(i));
  const auto page = events.read(1, 3);
  CHECK(ids(page) == Ids{"2", "3", "4"});
  CHECK(page.last == 4);
  CHECK(page.missed == 0);
  CHECK(ids(events.read(page.last, 3)) == Ids{"5"});
}

TEST_CASE("events that are no longer kept count as missed") {
  test::Loop loop;
  Events events(loop.control(), loop.clock, 2);
  for (int i = 1; i <= 5; ++i) events.push(change(i));
  const auto page = events.read(1, 10);
  CHECK(page.missed == 2);
  CHECK(ids(page) == Ids{"4", "5"});
}

TEST_CASE("reading after a number that was never given out returns no events and the last number") {
  test::Loop loop;
  Events events(loop.control(), loop.clock, 2);
  events.push(change(1));
  const auto page = events.read(99, 10);
  CHECK(page.changes.empty());
  CHECK(page.missed == 0);
  CHECK(page.last == 1);
}

TEST_CASE("a wait for events after a number ends with the next event or at its deadline") {
  test::Loop loop;
  Events events(loop.control(), loop.clock, 2);
  CHECK(loop.run(events.beyond(0, {loop.clock.now() + 1s})) == Waited::deadline);
  loop.clock.schedule(loop.clock.now() + 1s, [&] { events.push(change(1)); });
  CHECK(loop.run(events.beyond(0, {loop.clock.now() + 60s})) == Waited::ready);
  CHECK(loop.run(events.beyond(0, {})) == Waited::ready);
}

TEST_CASE("a wait for events after a number ignores the events before it") {
  test::Loop loop;
  Events events(loop.control(), loop.clock, 2);
  for (int i = 1; i <= 3; ++i) loop.clock.schedule(loop.clock.now() + i * 1s, [&events, i] { events.push(change(i)); });
  const auto begin = loop.clock.now();
  CHECK(loop.run(events.beyond(2, {})) == Waited::ready);
  CHECK(loop.clock.now() - begin == 3s);
}
