// The states of a freeze: each request gets one answer, and everything frozen is thawed.
#include "../../../src/volume/freezing.hpp"

#include <cerrno>
#include <random>

#include "support/catch.hpp"

using corbd::volume::Freezing;
using In = Freezing::In;
using Out = Freezing::Out;
using Phase = Freezing::Phase;

TEST_CASE("a snapshot is answered when the filesystem is frozen, and thaws it when it is made") {
  Freezing state;
  CHECK(state.next(In::asked) == Out{.freeze = true});
  CHECK(state.next(In::froze) == Out{.answer = 0});
  CHECK(state.next(In::ended) == Out{.thaw = true});
  CHECK(state.next(In::thawed) == Out{});
  CHECK(state.idle());
}

TEST_CASE("a filesystem that was not frozen refuses the snapshot, and is not thawed") {
  Freezing state;
  state.next(In::asked);
  CHECK(state.next(In::refused) == Out{.answer = -EBUSY});
  CHECK(state.idle());
}

TEST_CASE("a freeze whose end nobody knows refuses the snapshot, and is thawed") {
  Freezing state;
  state.next(In::asked);
  CHECK(state.next(In::unsure) == Out{.answer = -EIO, .thaw = true});
}

TEST_CASE("the limit thaws, and fails a snapshot that has no answer yet") {
  Freezing state;
  state.next(In::asked);
  CHECK(state.next(In::limit) == Out{.answer = -ETIME, .thaw = true});
  CHECK(state.next(In::froze) == Out{});
  CHECK(state.phase() == Phase::thawing);
}

TEST_CASE("the limit thaws, and says that a snapshot under way may not be consistent") {
  Freezing state;
  state.next(In::asked);
  state.next(In::froze);
  CHECK(state.next(In::limit) == Out{.thaw = true, .broken = true});
}

TEST_CASE("a filesystem that somebody thawed during the snapshot breaks it") {
  Freezing state;
  state.next(In::asked);
  state.next(In::froze);
  CHECK(state.next(In::thawed) == Out{.broken = true});
  CHECK(state.idle());
}

TEST_CASE("a second snapshot during the first is refused, and one during its thaw waits for that") {
  Freezing state;
  state.next(In::asked);
  CHECK(state.next(In::asked) == Out{.refuse = true});
  state.next(In::froze);
  CHECK(state.next(In::asked) == Out{.refuse = true});
  state.next(In::ended);
  CHECK(state.next(In::asked) == Out{});
  CHECK(state.next(In::asked) == Out{.refuse = true});
  CHECK(state.next(In::thawed) == Out{.freeze = true});
  CHECK(state.next(In::froze) == Out{.answer = 0});
}

TEST_CASE("an agent that leaves fails a snapshot that has no answer yet, and thaws") {
  Freezing state;
  state.next(In::asked);
  CHECK(state.next(In::leaves) == Out{.answer = -ESHUTDOWN, .thaw = true});
}

TEST_CASE("an agent that leaves lets a snapshot under way end, and refuses others until it stays after all") {
  Freezing state;
  state.next(In::asked);
  state.next(In::froze);
  CHECK(state.next(In::leaves) == Out{});
  CHECK(state.next(In::asked) == Out{.refuse = true});
  CHECK(state.next(In::ended) == Out{.thaw = true});
  state.next(In::thawed);
  CHECK(state.next(In::asked) == Out{.refuse = true});
  state.next(In::returns);
  CHECK(state.next(In::asked) == Out{.freeze = true});
}

TEST_CASE("a freeze of an earlier agent is thawed, and a snapshot waits for that") {
  Freezing state;
  CHECK(state.next(In::found) == Out{.thaw = true});
  CHECK(state.next(In::asked) == Out{});
  CHECK(state.next(In::thawed) == Out{.freeze = true});
}

TEST_CASE("each accepted request gets one answer, and what was frozen is thawed, in any order of events") {
  std::mt19937 random(7);
  for (int history = 0; history < 20000; ++history) {
    Freezing state;
    int owed = 0;
    bool frozen = false, under_way = false;
    for (int event = 0; event < 30; ++event) {
      In in{static_cast<int>(random() % 10)};
      // The answer to a freeze comes once, and the thaw's end after its begin.
      if ((in == In::froze || in == In::refused || in == In::unsure) && !std::exchange(under_way, false)) continue;
      if (in == In::thawed && (under_way || (!frozen && state.phase() != Phase::thawing))) continue;
      if (in == In::froze || in == In::unsure) frozen = true;
      if (in == In::thawed) frozen = false;
      const Out out = state.next(in);
      if (in == In::asked && !out.refuse) ++owed;
      if (out.answer) --owed;
      if (out.freeze) {
        REQUIRE_FALSE(frozen);
        under_way = true;
      }
      if (out.answer == 0) REQUIRE(frozen);
      REQUIRE(owed >= 0);
      REQUIRE(owed <= 1);
      if (frozen) REQUIRE(state.phase() != Phase::idle);
      if (state.idle()) REQUIRE(owed == 0);
    }
  }
}
