// What the flags of `corbd run` mean.
#include "config.hpp"

#include "corbd/core/utc.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using agent::AcceptsRefused;

TEST_CASE("the flag --accept-refused counts until its time, and counts for nothing if that is more than 7 days ahead") {
  const auto now = utc_of("2026-11-27T12:00:00Z").value();
  const auto counts = [&](const std::string& until) {
    agent::Options options;
    options.accept_refused = until;
    return agent::accepts_refused(options, now);
  };
  CHECK(counts("").value() == AcceptsRefused::no);
  CHECK(counts("2026-11-27T12:00:01Z").value() == AcceptsRefused::yes);
  CHECK(counts("2026-12-04T12:00:00Z").value() == AcceptsRefused::yes);
  CHECK(counts("2026-11-27T12:00:00Z").value() == AcceptsRefused::over);
  CHECK(counts("2026-12-04T12:00:01Z").value() == AcceptsRefused::too_far);
  for (const char* none : {"true", "1", "--pod=7", "2026-11-28"}) {
    const auto refused = counts(none);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK_THAT(refused.error().text, ContainsSubstring("--accept-refused=2026-11-28T12:00:00Z"));
  }
}

TEST_CASE("an agent tells its predecessor of --accept-refused only before the time of that flag") {
  agent::Options options;
  CHECK_FALSE(agent::handover_side(options).accepts_refused);
  const auto now = std::chrono::system_clock::now();
  options.accept_refused = utc_text(now + 1h);
  CHECK(agent::handover_side(options).accepts_refused);
  options.accept_refused = utc_text(now - 1h);
  CHECK_FALSE(agent::handover_side(options).accepts_refused);
}
