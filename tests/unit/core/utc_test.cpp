#include "corbd/core/utc.hpp"

#include "support/catch.hpp"

using namespace corbd;

namespace {

std::tm new_year(int year) {
  std::tm parts{};
  parts.tm_year = year - 1900;
  parts.tm_mday = 1;
  return parts;
}

}  // namespace

TEST_CASE("a date is parsed to the moment that it names") {
  const auto at = utc_from(new_year(2026));
  REQUIRE(at);
  CHECK(utc_text(*at) == "2026-01-01T00:00:00Z");
  CHECK(utc_from(new_year(2261)));
}

TEST_CASE("a time is parsed as Kubernetes writes it, and any other text is none") {
  CHECK(utc_text(utc_of("2026-11-22T12:03:04Z").value()) == "2026-11-22T12:03:04Z");
  for (const char* text : {"", "true", "2026-11-22", "2026-11-22T12:03:04", "2026-11-22T12:03:04Z!",
                           "2026-11-22T12:03:04+01:00", "2026-13-22T12:03:04Z", "1013-11-22T12:03:04Z"})
    CHECK_FALSE(utc_of(text));
}

TEST_CASE("a date out of the clock's range is rejected") {
  for (const int year : {1013, 1969, 2262, 9999}) CHECK_FALSE(utc_from(new_year(year)));
}
