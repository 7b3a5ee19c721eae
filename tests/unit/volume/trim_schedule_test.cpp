// The schedule of trims: whose turn it is, and why not.
#include "trim_schedule.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::volume;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::seconds kWeek = 168h;
const WallTime kNow = std::chrono::sys_days(std::chrono::year(2026) / 11 / 29);

TrimCandidate idle() { return {.id = "v"}; }
bool due(TrimTurn& turn, WallTime now, const TrimCandidate& of = idle()) { return trim_is_due(of, turn, kWeek, now); }

/// Returns the time from `now` to the volume's next turn.
duration until_turn(const std::string& id, WallTime now) {
  const auto present = trim_turn(id, kWeek, now);
  auto at = now;
  while (trim_turn(id, kWeek, at) == present) at += 1min;
  return at - now;
}

}  // namespace

TEST_CASE("a volume's turn comes once in a period, and not at the agent's start") {
  TrimTurn turn;
  CHECK_FALSE(due(turn, kNow));
  const auto first = kNow + std::chrono::duration_cast<WallTime::duration>(until_turn("v", kNow));
  CHECK_FALSE(due(turn, first - 1min));
  CHECK(due(turn, first));
  CHECK(due(turn, first + 24h));
  turn.ended = trim_turn("v", kWeek, first);
  CHECK_FALSE(due(turn, first + 24h));
  CHECK_FALSE(due(turn, first + kWeek - 1min));
  CHECK(due(turn, first + kWeek));
}

TEST_CASE("the turns of many volumes are spread over the period, and a restart moves none") {
  std::array<int, 7> days{};
  for (int i = 0; i < 700; ++i) {
    const auto id = "0001-volume-" + std::to_string(i);
    const auto in = until_turn(id, kNow);
    REQUIRE(in <= kWeek + 1min);
    ++days.at(static_cast<std::size_t>(std::min<std::int64_t>(6, in / 24h)));
    if (i % 100 == 0 && in > 2h) CHECK(until_turn(id, kNow + 1h) == in - 1h);
  }
  for (const int of_day : days) CHECK((of_day > 60 && of_day < 140));
}

TEST_CASE("a clock that is set back does not silence the schedule, and one that is set forward begins one turn") {
  TrimTurn turn;
  CHECK_FALSE(due(turn, kNow));
  CHECK_FALSE(due(turn, kNow - 100 * kWeek));
  CHECK(due(turn, kNow));
  turn.ended = trim_turn("v", kWeek, kNow);
  CHECK(due(turn, kNow + 100 * kWeek));
  turn.ended = trim_turn("v", kWeek, kNow + 100 * kWeek);
  CHECK_FALSE(due(turn, kNow + 100 * kWeek + 1h));
}

TEST_CASE("a volume that a caller has trimmed lately needs no turn, and one that was trimmed long ago does") {
  auto of = idle();
  TrimTurn turn{.ended = 0, .from = 4096};
  of.trimmed_at = kNow - kWeek / 2 + 1s;
  CHECK_FALSE(due(turn, kNow, of));
  CHECK(turn.ended == trim_turn("v", kWeek, kNow));
  CHECK(turn.from == 0);
  turn = {.ended = 0};
  of.trimmed_at = kNow - kWeek / 2;
  CHECK(due(turn, kNow, of));
}

TEST_CASE("volumes that nobody could trim are left out, each with its reason") {
  CHECK(why_never_trimmed(idle()).empty());
  auto of = idle();
  of.block = true;
  CHECK_THAT(why_never_trimmed(of), ContainsSubstring("raw block"));
  of = idle();
  of.read_only = true;
  CHECK_THAT(why_never_trimmed(of), ContainsSubstring("read-only"));
  of = idle();
  of.in_pieces = false;
  CHECK_THAT(why_never_trimmed(of), ContainsSubstring("pieces"));
  of = idle();
  of.discards = false;
  CHECK_THAT(why_never_trimmed(of), ContainsSubstring("mapOptions"));
}

TEST_CASE("a volume that is busy, or that something else works on, waits") {
  CHECK(why_trim_waits(idle()).empty());
  auto of = idle();
  of.staged = false;
  CHECK_THAT(why_trim_waits(of), ContainsSubstring("not staged and served"));
  of = idle();
  of.operation = true;
  CHECK_THAT(why_trim_waits(of), ContainsSubstring("operation"));
  of = idle();
  of.hangs = "other";
  CHECK_THAT(why_trim_waits(of), ContainsSubstring("volume other hangs"));
  of = idle();
  of.requests_per_second = kBusyRequestsPerSecond;
  of.in_flight = kBusyInFlight;
  of.oldest = kBusyOldest - 1ms;
  CHECK(why_trim_waits(of).empty());
  for (int i = 0; i < 3; ++i) {
    auto more = of;
    if (i == 0) ++more.requests_per_second;
    if (i == 1) ++more.in_flight;
    if (i == 2) more.oldest += 1ms;
    CHECK_THAT(why_trim_waits(more), ContainsSubstring("busy"));
  }
}

TEST_CASE("a trim rests four times as long as its last piece took, a second at least and a minute at most") {
  CHECK(trim_pause(0s) == 1s);
  CHECK(trim_pause(500ms) == 2s);
  CHECK(trim_pause(1h) == 1min);
}
