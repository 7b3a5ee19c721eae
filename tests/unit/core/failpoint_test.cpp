#include "corbd/core/failpoint.hpp"

#include "support/catch.hpp"

using namespace corbd;

namespace {

const failpoint::Places kPlaces({"step.mount.before"});

}  // namespace

TEST_CASE("a failpoint that is not armed does nothing") { CHECK(failpoint::hit("step.mount.before")); }

TEST_CASE("a failpoint fails at its Nth hit and only then") {
  REQUIRE(failpoint::arm("step.mount.before=error@2"));
  CHECK(failpoint::hit("step.mount.before"));
  CHECK_FALSE(failpoint::hit("step.mount.before"));
  CHECK(failpoint::hit("step.mount.before"));
  REQUIRE(failpoint::arm("step.mount.before=off"));
}

TEST_CASE("a failpoint that does not exist cannot be armed") {
  const auto armed = failpoint::arm("step.nowhere.before=kill");
  REQUIRE_FALSE(armed);
  CHECK_THAT(armed.error().text, ContainsSubstring("--list-failpoints"));
  CHECK_FALSE(failpoint::arm("step.mount.before=explode"));
  CHECK_FALSE(failpoint::arm("step.mount.before=kill@0"));
}
