#include "corbd/core/backoff.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;

TEST_CASE("backoff doubles from the first wait to the cap") {
  const Backoff backoff{1s, 60s};
  CHECK(backoff.after(0, 1.0) == 1s);
  CHECK(backoff.after(3, 1.0) == 8s);
  CHECK(backoff.after(6, 1.0) == 60s);
  CHECK(backoff.after(4000000000u, 1.0) == 60s);
}

TEST_CASE("backoff jitters over its whole range but never tries at once") {
  const Backoff backoff{1s, 60s};
  CHECK(backoff.after(2, 0.5) == 2s);
  CHECK(backoff.after(2, 0.0) == 400ms);
}
