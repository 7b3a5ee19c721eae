// When a server counts as silent.
#include "corbd/volume/silence.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {
const time_point t0 = time_point() + 1h;
}  // namespace

TEST_CASE("a silence lasts from the first look that found requests waiting and none answered until the next") {
  volume::Silence silence;
  silence.look(7, 1, t0);
  CHECK(silence.lasted() == 0s);
  silence.look(7, 2, t0 + 30s);
  silence.look(7, 2, t0 + 90s);
  CHECK(silence.lasted() == 90s);
}

TEST_CASE("a silence ends with one answer, and when nothing waits") {
  volume::Silence silence;
  silence.look(7, 1, t0);
  silence.look(7, 1, t0 + 90s);
  silence.look(8, 1, t0 + 120s);
  CHECK(silence.lasted() == 0s);
  silence.look(8, 1, t0 + 150s);
  CHECK(silence.lasted() == 30s);
  silence.look(0, 0, t0 + 180s);
  CHECK(silence.lasted() == 0s);
  // What waits now is new.
  silence.look(8, 1, t0 + 210s);
  CHECK(silence.lasted() == 0s);
}
