// When a server counts as silent.
#include "server_watchdog.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {
const time_point t0 = time_point() + 1h;
}  // namespace

TEST_CASE(
    "a silence is measured from the first look that finds requests waiting, as long as later looks find none "
    "answered",
    "[failure:168]") {
  volume::ServerWatchdog silence;
  silence.look(7, 1, t0);
  CHECK(silence.lasted() == 0s);
  silence.look(7, 2, t0 + 30s);
  silence.look(7, 2, t0 + 90s);
  CHECK(silence.lasted() == 90s);
}

TEST_CASE("a silence ends when a request is answered or when none waits", "[failure:168]") {
  volume::ServerWatchdog silence;
  silence.look(7, 1, t0);
  silence.look(7, 1, t0 + 90s);
  silence.look(8, 1, t0 + 120s);
  CHECK(silence.lasted() == 0s);
  silence.look(8, 1, t0 + 150s);
  CHECK(silence.lasted() == 30s);
  silence.look(0, 0, t0 + 180s);
  CHECK(silence.lasted() == 0s);
  // The requests that wait now are new.
  silence.look(8, 1, t0 + 210s);
  CHECK(silence.lasted() == 0s);
}
