#include "corbd/lifecycle/leaving.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using lifecycle::decide;
using lifecycle::Decision;
using lifecycle::Told;

namespace {

/// On a node that stays, in a pod, a second after the signal.
Told told_in_pod() { return {.node_stops = false, .in_use = 3, .since = 1s, .grace = 200s}; }

}  // namespace

TEST_CASE("an agent that is told to end with devices in use serves until the next one asks, and hands over to it",
          "[failure:151]") {
  auto told = told_in_pod();
  CHECK(decide(told) == Decision::wait);
  told.since = 199s;
  CHECK(decide(told) == Decision::wait);
  told.next_asks = true;
  CHECK(decide(told) == Decision::hand_over);
}

TEST_CASE("an agent that is told to end leaves once its grace is over, though devices are in use", "[failure:151]") {
  auto told = told_in_pod();
  told.since = told.grace;
  CHECK(decide(told) == Decision::leave);
}

TEST_CASE("a second signal ends the wait for a next agent, unless that has already asked") {
  auto told = told_in_pod();
  told.signals = 2;
  CHECK(decide(told) == Decision::leave);
  told.next_asks = true;
  CHECK(decide(told) == Decision::hand_over);
}

TEST_CASE("an agent without a device in use leaves at once when told to end, unless a pod is in reserve") {
  auto told = told_in_pod();
  told.in_use = 0;
  CHECK(decide(told) == Decision::leave);
  told.called = true;
  CHECK(decide(told) == Decision::wait);
  told.since = lifecycle::kCalledAsksWithin;
  CHECK(decide(told) == Decision::leave);
}

TEST_CASE("an agent outside of a pod leaves at once when it is told to end") {
  auto told = told_in_pod();
  told.grace = 0s;
  CHECK(decide(told) == Decision::leave);
}

TEST_CASE("an agent on a node that shuts down serves devices until nobody uses them, and accepts no next agent") {
  auto told = told_in_pod();
  told.node_stops = true;
  CHECK(decide(told) == Decision::wait_for_users);
  told.next_asks = true;
  told.signals = 2;
  told.since = 1h;
  CHECK(decide(told) == Decision::wait_for_users);
}

TEST_CASE("an agent that is told to end decides nothing before it knows whether the node shuts down") {
  auto told = told_in_pod();
  told.node_stops.reset();
  told.grace = 0s;
  told.next_asks = true;
  CHECK(decide(told) == Decision::wait);
}
