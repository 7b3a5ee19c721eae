#include "policy.hpp"

#include <algorithm>
#include <csignal>
#include <vector>

#include "support/catch.hpp"

namespace corbd::test {
namespace {
using namespace std::chrono_literals;
const time_point kBegin{100h};
}  // namespace

TEST_CASE("an agent that dies is started again at once, and later each time, up to five minutes", "[failure:163]") {
  keeper::Policy policy;
  time_point now = kBegin;
  for (const duration pause : std::initializer_list<duration>{0s, 100ms, 500ms, 2s, 4s, 8s, 16s, 32s, 64s}) {
    CHECK(policy.died(now, false).pause == pause);
    now += 1s;
  }
  for (int deaths = 0; deaths < 50; ++deaths) CHECK(policy.died(now, false).pause <= 5min);
  CHECK(policy.died(now, false).pause == 5min);
}

TEST_CASE("from the fourth death in a series on, the next agent inherits nothing", "[failure:153]") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 3; ++deaths) CHECK(policy.died(kBegin + deaths * 1s, false).keeps_links);
  CHECK_FALSE(policy.died(kBegin + 3s, false).keeps_links);
  CHECK_FALSE(policy.died(kBegin + 4s, false).keeps_links);
}

TEST_CASE("agents that served well are started again at once with their links, fifty times in a row", "[failure:163]") {
  keeper::Policy policy;
  time_point now = kBegin;
  for (int deaths = 0; deaths < 50; ++deaths) {
    const auto restart = policy.died(now, true);
    CHECK(restart.pause == 0s);
    CHECK(restart.keeps_links);
    now += 12s;
  }
}

TEST_CASE("an agent that served well ends a series of deaths", "[failure:163]") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 6; ++deaths) policy.died(kBegin + deaths * 1s, false);
  const auto restart = policy.died(kBegin + 30s, true);
  CHECK(restart.pause == 0s);
  CHECK(restart.keeps_links);
  CHECK(policy.died(kBegin + 31s, false).pause == 100ms);
}

TEST_CASE("an agent that dies every minute is started sixty times more than once in five minutes at most",
          "[failure:163]") {
  keeper::Policy policy;
  int starts = 0;
  for (time_point now = kBegin; now < kBegin + 24h; ++starts) {
    now += 1min;
    const auto restart = policy.died(now, true);
    CHECK(restart.keeps_links);
    CHECK(restart.pause <= 5min);
    now += restart.pause;
  }
  CHECK(starts <= 60 + 24 * 12 + 1);
  CHECK(starts > 24 * 12);
}

TEST_CASE("an agent's links are trusted if it was killed from outside, and not if it crashed", "[failure:153]") {
  for (const int signal : {0, SIGKILL, SIGTERM, SIGINT}) CHECK(keeper::trusts(signal));
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGSYS, SIGTRAP})
    CHECK_FALSE(keeper::trusts(signal));
}

TEST_CASE("an agent that lived for five minutes is started again at once, as often as it dies", "[failure:163]") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 100; ++deaths) CHECK(policy.died(kBegin + deaths * 5min, false).pause == 0s);
}

TEST_CASE("a series of deaths is forgotten gradually, and wholly after an hour of life", "[failure:163]") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 1000; ++deaths) policy.died(kBegin, false);
  const auto died_after = [&](duration life) { return keeper::Policy(policy).died(kBegin + life, false).pause; };
  CHECK(died_after(30min) == 16s);
  CHECK(died_after(55min) == 100ms);
  CHECK(died_after(1h) == 0s);
}

TEST_CASE("an agent that dies every four seconds is started ten times in two minutes at most, and 300 times a day",
          "[failure:163]") {
  keeper::Policy policy;
  std::vector<time_point> starts;
  for (time_point now = kBegin; now < kBegin + 24h;) {
    starts.push_back(now);
    now += 4s;
    now += policy.died(now, false).pause;
  }
  CHECK(std::ranges::count_if(starts, [](time_point start) { return start < kBegin + 2min; }) <= 10);
  CHECK(starts.size() <= 300);
}

}  // namespace corbd::test
