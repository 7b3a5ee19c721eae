// Thousands of short histories of a node, each made of a seed:
//   simulate --seeds N [--from S]    runs N of them, prints those that break a rule, and how to see one again; --first
//                                    ends at one
//   simulate --seed S [--trace]      one of them, with every event; --whole keeps the faults that do not matter
// With --nodes 2 first they are histories of two nodes on one cluster, each with a whole agent.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "corbd/core/log.hpp"
#include "history.hpp"

namespace {

using namespace corbd::sim;

// The seed that is being lived: an abort in the agent ends the program, and only write(2) may be called then.
volatile std::uint64_t living = 0;
int nodes = 1;

void say_where(int signal) {
  constexpr std::string_view before = "seed ", after = " crashed\n";
  std::array<char, 64> line{};
  char* at = std::copy(before.begin(), before.end(), line.begin());
  at = std::to_chars(at, at + 20, std::uint64_t{living}).ptr;
  at = std::copy(after.begin(), after.end(), at);
  if (::write(STDOUT_FILENO, line.data(), static_cast<std::size_t>(at - line.data())) < 0) {
    // There is nobody to tell.
  }
  ::raise(signal);  // as it would have ended: SA_RESETHAND
}

void name_crashes() {
  struct sigaction action{};
  action.sa_handler = say_where;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::sigaction(signal, &action, nullptr);
}

void tell(const History& history, const Outcome& outcome) {
  for (const auto& rule : outcome.broken)
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(history.seed), rule.c_str());
  const auto least = shrink(history);
  for (const auto& fault : least.faults) std::printf("  %s\n", text(fault).c_str());
  std::printf("  see it: simulate %s--seed %llu --trace\n", nodes == 2 ? "--nodes 2 " : "",
              static_cast<unsigned long long>(history.seed));
}

History make(std::uint64_t seed) { return nodes == 2 ? make_history_of_two(seed) : make_history(seed); }

int run_one(std::uint64_t seed, bool trace, bool whole) {
  living = seed;
  auto history = make(seed);
  // One that crashes shows how far it came.
  const auto outcome = run(history, trace && whole);
  if (!outcome.broken.empty() && !whole) history = shrink(history);
  if (trace && !whole) run(history, true);
  for (const auto& volume : history.volumes)
    std::printf("%s:%s%s%s%s%s%s%s%s\n", volume.image.c_str(), volume.exclusive ? " exclusive" : "",
                volume.filled ? " filled" : "", volume.raw ? " with raw data" : "", volume.block ? " block" : "",
                volume.read_only ? " read-only" : "",
                volume.kms.empty() ? ""
                : volume.files     ? " with files encrypted by "
                                   : " encrypted by ",
                volume.kms.c_str(), volume.integrity ? " with integrity" : "");
  for (const auto& fault : history.faults) std::printf("%s\n", text(fault).c_str());
  for (const auto& rule : run(history, false).broken) std::printf("BROKEN %s\n", rule.c_str());
  return outcome.broken.empty() ? 0 : 1;
}

/// So many histories of one node meet what the histories are made for.
constexpr std::uint64_t kMustMeet = 2000;

int run_many(std::uint64_t from, std::uint64_t seeds, int told) {
  std::uint64_t calls = 0, requests = 0, losses_told = 0;
  int failed = 0;
  const auto began = std::chrono::steady_clock::now();
  for (std::uint64_t seed = from; seed < from + seeds; ++seed) {
    living = seed;
    const auto history = make(seed);
    const auto outcome = run(history, false);
    calls += outcome.calls;
    requests += outcome.requests;
    losses_told += outcome.losses_told;
    if (!outcome.broken.empty() && ++failed <= told) tell(history, outcome);
    if (failed == told) break;
  }
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf(
      "%llu histories, %llu calls, %llu requests, %llu flushes failed over a lost cache, %d broken, %.0f histories a "
      "minute\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(calls),
      static_cast<unsigned long long>(requests), static_cast<unsigned long long>(losses_told), failed,
      static_cast<double>(seeds) / s * 60);
  if (nodes == 1 && seeds >= kMustMeet && losses_told == 0) {
    std::printf("BROKEN no history met a lost cache: the fake kernel or the faults forbid it\n");
    return 1;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t from = 0, seeds = 2000, seed = 0;
  int told = 10;  // a defect is often met by many
  bool one = false, trace = false, whole = false;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--trace") == 0)
      trace = true;
    else if (std::strcmp(argv[i], "--whole") == 0)
      whole = true;
    else if (std::strcmp(argv[i], "--nodes") == 0 && more)
      nodes = std::stoi(argv[++i]) == 2 ? 2 : 1;
    else if (std::strcmp(argv[i], "--first") == 0)
      told = 1;
    else if (std::strcmp(argv[i], "--seeds") == 0 && more)
      seeds = std::stoull(argv[++i]);
    else if (std::strcmp(argv[i], "--from") == 0 && more)
      from = std::stoull(argv[++i]);
    else if (std::strcmp(argv[i], "--seed") == 0 && more)
      one = true, seed = std::stoull(argv[++i]);
    else
      return std::fprintf(stderr,
                          "simulate [--nodes 2] --seeds N [--from S] [--first] | --seed S [--trace] [--whole]\n"),
             2;
  }
  name_crashes();
  // What was told so far is seen also when the next seed crashes.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // The agent's own log goes to stderr; only a trace wants it.
  corbd::log::set_level(trace ? corbd::log::Level::info : corbd::log::Level::error);
  if (!trace && std::freopen("/dev/null", "w", stderr) == nullptr) return 2;
  return one ? run_one(seed, trace, whole) : run_many(from, seeds, told);
}
