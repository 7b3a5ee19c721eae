// Searches the world of state.hpp, with the real planner in it:
//   search                       the first 400,000 states of every setting
//   search --setting NAME        one of them; each --fault NAME plants a fault; --list names both
//   --states N, --depth N        bounds; 0: none
//   --disturbances N, --writes N instead of those of the setting
//   --no-exits                   looks for no states without an exit
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "search.hpp"
#include "settings.hpp"

namespace {

using namespace corbd::search;

int fail(const std::string& why) {
  std::fprintf(stderr, "search: %s\n", why.c_str());
  return 2;
}

void list() {
  for (const auto& setting : kSettings)
    std::printf("setting %-10s %s\n", std::string(setting.name).c_str(), std::string(setting.what).c_str());
  for (const auto& row : kFaults)
    std::printf("fault   %-22s %s\n", std::string(row.name).c_str(), std::string(row.what).c_str());
}

/// Whether a rule is broken, or a state has no exit.
bool tell(const Setting& setting, const Limits& limits) {
  const Report report = search(setting, limits);
  std::printf("%-10s %zu states, %zu moves, depth %d, %zu questions to the planner, %.1f s, %s\n",
              std::string(setting.name).c_str(), report.states, report.moves, report.depth, report.questions,
              report.seconds, report.complete ? "complete" : "not complete");
  if (report.left_out > 0) std::printf("  %zu moves left out: too many clients\n", report.left_out);
  if (!report.broken.empty())
    std::printf("  BROKEN after %zu moves: %s\n", report.trace.size() - 2, report.broken.c_str());
  if (report.dead_ends > 0) std::printf("  BROKEN: %zu states without an exit; the first:\n", report.dead_ends);
  for (const auto& line : report.trace) std::printf("    %s\n", line.c_str());
  std::fflush(stdout);
  return !report.broken.empty() || report.dead_ends > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Limits limits{.states = 400'000};
  std::string only;
  Faults faults = {};
  std::optional<unsigned> disturbances, writes;
  for (int at = 1; at < argc; ++at) {
    const std::string option = argv[at];
    if (option == "--list") {
      list();
      return 0;
    }
    if (option == "--no-exits") {
      limits.exits = false;
      continue;
    }
    if (at + 1 == argc) return fail("unknown option, or one without a value: " + option);
    const char* value = argv[++at];
    std::size_t number = 0;
    std::from_chars(value, value + std::strlen(value), number);
    if (option == "--setting") {
      only = value;
    } else if (option == "--fault") {
      const auto found = find_fault(value);
      if (!found) return fail("no such fault: " + std::string(value));
      faults.plant(*found);
    } else if (option == "--states") {
      limits.states = number;
    } else if (option == "--depth") {
      limits.depth = static_cast<int>(number);
    } else if (option == "--disturbances") {
      disturbances = number;
    } else if (option == "--writes") {
      writes = number;
    } else {
      return fail("unknown option: " + option);
    }
  }
  bool broken = false, known = only.empty();
  for (Setting setting : kSettings) {
    if (!only.empty() && setting.name != only) continue;
    known = true;
    setting.faults = faults;
    if (disturbances) setting.disturbances = static_cast<std::uint8_t>(*disturbances);
    if (writes) setting.writes = static_cast<std::uint8_t>(*writes);
    broken |= tell(setting, limits);
  }
  if (!known) return fail("no such setting: " + only);
  return broken ? 1 : 0;
}
