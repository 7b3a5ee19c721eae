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

TEST_CASE("nothing is trimmed without --trim-every, which is a minute or more") {
  agent::Options options;
  CHECK(agent::trim_every(options).value() == 0s);
  options.trim_every = "7d";
  CHECK(agent::trim_every(options).value() == std::chrono::hours(7 * 24));
  for (const char* wrong : {"0", "59s", "often", "-1h", "7w"}) {
    options.trim_every = wrong;
    const auto refused = agent::trim_every(options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK_THAT(refused.error().text, ContainsSubstring("--trim-every=7d"));
  }
}
