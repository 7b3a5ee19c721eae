// When an io thread polls before it sleeps.
#include "polling.hpp"

#include "support/catch.hpp"

using corbd::nbd::Polling;

namespace {
void misses(Polling& polling, int times) {
  for (int i = 0; i < times; ++i) polling.ended(false, false);
}
int rests(Polling& polling) {
  int batches = 0;
  while (!polling.pays(1, 10)) ++batches;
  return batches;
}
}  // namespace

TEST_CASE("polling pays after one operation that ended alone and soon") {
  Polling polling;
  CHECK(polling.pays(1, 10));
  CHECK_FALSE(polling.pays(0, 10));
  CHECK_FALSE(polling.pays(2, 10));
  CHECK_FALSE(polling.pays(1, 1000));
}

TEST_CASE("an io thread that polled four times in a row for nothing rests for 64 batches") {
  Polling polling;
  misses(polling, 3);
  polling.ended(true, false);
  misses(polling, 3);
  CHECK(polling.pays(1, 10));
  misses(polling, 1);
  CHECK(rests(polling) == 64);
}

TEST_CASE("an io thread that lost its processor while it polled rests for 1,024 batches") {
  Polling polling;
  polling.ended(true, true);
  CHECK(rests(polling) == 1024);
}
