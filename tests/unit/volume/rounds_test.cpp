// Looks that are taken from time to time.
#include "rounds.hpp"

#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

struct Looks {
  task<> look(std::shared_ptr<CancelScope> leaving) {
    ++taken;
    static_cast<void>(co_await sleep_until(loop.control(), loop.clock, loop.clock.now() + lasts, leaving.get()));
  }
  test::Loop loop;
  int taken = 0;
  duration lasts{};
  Gate gate{loop.control(), loop.clock};
  volume::Rounds rounds{loop.clock, gate, [this](auto leaving) { return look(std::move(leaving)); }};
};

}  // namespace

TEST_CASE("a look is taken after the first time, and another one so long after its end") {
  Looks looks;
  looks.lasts = 30s;
  looks.rounds.start(10s, 60s);
  looks.loop.advance(9s);
  CHECK(looks.taken == 0);
  looks.loop.advance(2s);
  CHECK(looks.taken == 1);
  looks.loop.advance(85s);
  CHECK(looks.taken == 1);
  looks.loop.advance(10s);
  CHECK(looks.taken == 2);
  looks.loop.advance(31s);
}

TEST_CASE("no look is taken while the agent leaves, and they go on if it does not after all") {
  Looks looks;
  looks.rounds.start(10s, 60s);
  looks.rounds.stop();
  looks.loop.advance(11s);
  CHECK(looks.taken == 0);
  looks.rounds.resume();
  looks.loop.advance(60s);
  CHECK(looks.taken == 1);
}
