#include "policy.hpp"

#include <csignal>

#include "support/catch.hpp"

namespace corbd::test {
namespace {
using namespace std::chrono_literals;
const time_point kBegin{100h};
}  // namespace

TEST_CASE("an agent that dies is started again at once, and later each time") {
  keeper::Policy policy;
  CHECK(policy.died(kBegin) == 0ms);
  CHECK(policy.died(kBegin + 1s) == 100ms);
  CHECK(policy.died(kBegin + 2s) == 500ms);
}

TEST_CASE("the fourth death within ten seconds is the last") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 3; ++deaths) REQUIRE(policy.died(kBegin + deaths * 1s));
  CHECK_FALSE(policy.died(kBegin + 9999ms));
}

TEST_CASE("what an agent left counts if it was killed from outside, and not if it crashed") {
  for (const int signal : {0, SIGKILL, SIGTERM, SIGINT}) CHECK(keeper::trusts(signal));
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGSYS, SIGTRAP})
    CHECK_FALSE(keeper::trusts(signal));
}

TEST_CASE("deaths of ten seconds ago do not count") {
  keeper::Policy policy;
  for (int deaths = 0; deaths < 100; ++deaths) REQUIRE(policy.died(kBegin + deaths * 3400ms));
  CHECK(policy.died(kBegin + 1h) == 0ms);
}

}  // namespace corbd::test
