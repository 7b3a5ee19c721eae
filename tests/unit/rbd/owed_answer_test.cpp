// librbd's requests before a snapshot: one answer to each.
#include "../../../src/rbd/owed_answer.hpp"

#include <cerrno>

#include "support/catch.hpp"

using corbd::rbd::OwedAnswer;

TEST_CASE("a request is answered once") {
  OwedAnswer owed;
  CHECK(owed.take(0, 0) == std::nullopt);
  const auto request = owed.asked();
  CHECK(owed.take(request, 0) == 0);
  CHECK(owed.take(request, 0) == std::nullopt);
  CHECK(owed.take_any(-ESHUTDOWN) == std::nullopt);
}

TEST_CASE("an answer that comes late is none to the next snapshot's request") {
  OwedAnswer owed;
  const auto first = owed.asked();
  CHECK(owed.take_any(-ESHUTDOWN) == -ESHUTDOWN);
  const auto second = owed.asked();
  CHECK(owed.take(first, 0) == std::nullopt);
  CHECK(owed.take(second, -EBUSY) == -EBUSY);
}

TEST_CASE("a refusal overtakes an answer of success that waits for a thread, and only that one") {
  OwedAnswer owed;
  const auto first = owed.asked();
  owed.refuse(first, -ETIMEDOUT);
  CHECK(owed.take(first, 0) == -ETIMEDOUT);
  const auto second = owed.asked();
  owed.refuse(first, -ETIMEDOUT);
  CHECK(owed.take(second, 0) == 0);
}
