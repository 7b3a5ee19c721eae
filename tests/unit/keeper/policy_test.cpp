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

TEST_CASE("an agent that dies is started again at once, and later each time, up to five minutes") {
  keeper::Policy policy;
  time_point now = kBegin;
  for (const duration pause : std::initializer_list<duration>{0s, 100ms, 500ms, 2s, 4s, 8s, 16s, 32s, 64s}) {
    CHECK(policy.died(now).pause == pause);
    now += 1s;
  }
  for (int deaths = 0; deaths < 50; ++deaths) CHECK(policy.died(now).pause <= 5min);
  CHECK(policy.died(now).pause == 5min);
}

TEST_CASE("from the fourth death in a series on, the next agent inherits nothing") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 3; ++deaths) CHECK(policy.died(kBegin + deaths * 1s).keeps_links);
  CHECK_FALSE(policy.died(kBegin + 3s).keeps_links);
  CHECK_FALSE(policy.died(kBegin + 4s).keeps_links);
}

TEST_CASE("an agent's links are trusted if it was killed from outside, and not if it crashed") {
  for (const int signal : {0, SIGKILL, SIGTERM, SIGINT}) CHECK(keeper::trusts(signal));
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGSYS, SIGTRAP})
    CHECK_FALSE(keeper::trusts(signal));
}

TEST_CASE("an agent that lived for five minutes is started again at once, as often as it dies") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 100; ++deaths) CHECK(policy.died(kBegin + deaths * 5min).pause == 0s);
}

TEST_CASE("a series of deaths is forgotten gradually, and wholly after an hour of life") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 1000; ++deaths) policy.died(kBegin);
  const auto died_after = [&](duration life) { return keeper::Policy(policy).died(kBegin + life).pause; };
  CHECK(died_after(30min) == 16s);
  CHECK(died_after(55min) == 100ms);
  CHECK(died_after(1h) == 0s);
}

TEST_CASE("an agent that dies every four seconds is started ten times in two minutes at most, and 300 times a day") {
  keeper::Policy policy;
  std::vector<time_point> starts;
  for (time_point now = kBegin; now < kBegin + 24h;) {
    starts.push_back(now);
    now += 4s;
    now += policy.died(now).pause;
  }
  CHECK(std::ranges::count_if(starts, [](time_point start) { return start < kBegin + 2min; }) <= 10);
  CHECK(starts.size() <= 300);
}

}  // namespace corbd::test
