// Planted faults that the search has to find, each by a shortest trace.
#include <algorithm>

#include "search.hpp"
#include "settings.hpp"
#include "support/catch.hpp"

using namespace corbd::search;

namespace {

Setting setting_of(std::string_view name) { return *std::ranges::find(kSettings, name, &Setting::name); }

struct Planted {
  std::string_view setting;
  Faults faults;
  std::size_t moves;  ///< of the shortest trace
  std::string rule;
};

constexpr const char* kStale = "a device is served again above what another client wrote since";
constexpr const char* kBeside = "a write landed beside the owner of the lock";
constexpr const char* kNoLock = "a server that may write does not hold the lock";

/// The moves of the trace, without what is said before and behind them.
std::size_t moves_of(const Report& report) { return report.trace.empty() ? 0 : report.trace.size() - 2; }

}  // namespace

TEST_CASE("the search finds each planted fault, and by no longer way than before") {
  using enum Fault;
  const auto planted = GENERATE(values<Planted>({
      {"rescue", {free_lock_is_proof}, 13, kStale},
      {"rescue", {stamp_is_not_compared}, 15, kStale},
      {"rescue", {foreign_lock_is_own}, 14, kBeside},
      {"rescue", {lock_skips_header}, 15, kStale},
      {"late", {late_lock_is_proof}, 17, kStale},
      {"alone", {fence_blocks_nobody}, 12, kBeside},
      {"alone", {cut_off_client_serves}, 6, kNoLock},
      {"two", {eviction_blocks_nobody}, 11, kNoLock},
      {"handover", {both_agents_answer}, 14, kBeside},
  }));
  Setting setting = setting_of(planted.setting);
  setting.faults = planted.faults;
  const Report report = search(setting, {.states = 200'000, .exits = false});
  INFO(planted.setting);
  for (const auto& line : report.trace) UNSCOPED_INFO(line);
  CHECK(report.broken == planted.rule);
  CHECK(moves_of(report) == planted.moves);
}

TEST_CASE("the search finds each documented gap") {
  using enum Fault;
  const auto gap = GENERATE(values<Planted>({
      {"rescue", {writes_leave_no_stamp}, 15, kStale},
      {"rescue", {visit_beside_the_lock}, 11, kStale},
      {"alone", {entries_end_early}, 4, kNoLock},
  }));
  Setting setting = setting_of(gap.setting);
  setting.faults = gap.faults;
  const Report report = search(setting, {.states = 200'000, .exits = false});
  CHECK(report.broken == gap.rule);
  CHECK(moves_of(report) == gap.moves);
}

TEST_CASE("a search without a planted fault finds none, and every state has an exit") {
  Setting setting = setting_of("alone");
  setting.disturbances = 1;
  const Report report = search(setting, {});
  CHECK(report.complete);
  CHECK(report.broken.empty());
  CHECK(report.dead_ends == 0);
  CHECK(report.left_out == 0);
  CHECK(report.states > 1'000);
}

TEST_CASE("a search that meets a limit says so") {
  CHECK_FALSE(search(setting_of("alone"), {.states = 1'000}).complete);
  CHECK_FALSE(search(setting_of("alone"), {.depth = 5}).complete);
}
