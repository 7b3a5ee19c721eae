// [failure:1][failure:102][failure:105][failure:107][failure:113][failure:116][failure:131][failure:140]
// [failure:141][failure:160][failure:161][failure:162][failure:167][failure:174][failure:180][failure:200]
// [failure:233]
// Thousands of short histories of a node, each made of a seed:
//   simulate --seeds N [--from S]    runs N of them on all processors or on --jobs J, prints those that break a rule,
//                                    and how to see one again; --first ends at one
//   simulate --seed S [--trace]      one of them, with every event; --whole keeps the faults that do not matter
// With --nodes 2 first they are histories of two nodes on one cluster, each with a whole agent.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

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

/// By one write: other processes tell of theirs.
void tell(const History& history, const Outcome& outcome) {
  const std::string seed = std::to_string(history.seed);
  std::string all;
  for (const auto& rule : outcome.broken) all += "seed " + seed + ": " + rule + "\n";
  const auto least = shrink(history);
  for (const auto& fault : least.faults) all += "  " + text(fault) + "\n";
  all += "  see it: simulate " + std::string(nodes == 2 ? "--nodes 2 " : "") + "--seed " + seed + " --trace\n";
  if (::write(STDOUT_FILENO, all.data(), all.size()) < 0) {
    // There is nobody to tell.
  }
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

struct Played {
  std::uint64_t histories = 0, calls = 0, requests = 0, losses_told = 0, broken = 0;
};

/// How many broken ones all processes have told together.
std::atomic<std::uint64_t>& told_by_all() {
  static void* const shared =
      ::mmap(nullptr, sizeof(std::atomic<std::uint64_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *static_cast<std::atomic<std::uint64_t>*>(shared);
}

/// Each `step`th of them, until `most` broken ones are told.
Played play(std::uint64_t from, std::uint64_t end, std::uint64_t step, std::uint64_t most) {
  Played played;
  for (std::uint64_t seed = from; seed < end && told_by_all() < most; seed += step) {
    living = seed;
    const auto history = make(seed);
    const auto outcome = run(history, false);
    ++played.histories;
    played.calls += outcome.calls;
    played.requests += outcome.requests;
    played.losses_told += outcome.losses_told;
    if (outcome.broken.empty()) continue;
    ++played.broken;
    if (told_by_all()++ < most) tell(history, outcome);
  }
  return played;
}

/// A process that plays its part of the histories, and the end of a pipe where it says what it played.
struct Job {
  pid_t pid = 0;
  int said = -1;
};

Job start_job(std::uint64_t from, std::uint64_t end, std::uint64_t step, std::uint64_t told) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Played played = play(from, end, step, told);
    // Not _exit(): a sanitizer looks for leaks at the end.
    std::exit(::write(ends[1], &played, sizeof played) == static_cast<ssize_t>(sizeof played) ? 0 : 1);
  }
  ::close(ends[1]);
  return {pid, ends[0]};
}

/// Adds what it played. False: it crashed, and has said where.
bool add(Played& sum, const Job& job) {
  Played played;
  if (job.pid <= 0) return false;
  const bool said = ::read(job.said, &played, sizeof played) == static_cast<ssize_t>(sizeof played);
  ::close(job.said);
  int status = 0;
  if (::waitpid(job.pid, &status, 0) != job.pid || status != 0 || !said) return false;
  sum.histories += played.histories;
  sum.calls += played.calls;
  sum.requests += played.requests;
  sum.losses_told += played.losses_told;
  sum.broken += played.broken;
  return true;
}

int run_many(std::uint64_t from, std::uint64_t seeds, std::uint64_t jobs, std::uint64_t told) {
  told_by_all() = 0;  // before the processes part
  const auto began = std::chrono::steady_clock::now();
  std::vector<Job> all;
  for (std::uint64_t job = 0; job < jobs; ++job) all.push_back(start_job(from + job, from + seeds, jobs, told));
  Played sum;
  bool ended = true;
  for (const auto& job : all) ended = add(sum, job) && ended;
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf(
      "%llu histories, %llu calls, %llu requests, %llu flushes failed over a lost cache, %llu broken, %.0f histories a "
      "minute on %llu processors\n",
      static_cast<unsigned long long>(sum.histories), static_cast<unsigned long long>(sum.calls),
      static_cast<unsigned long long>(sum.requests), static_cast<unsigned long long>(sum.losses_told),
      static_cast<unsigned long long>(sum.broken), static_cast<double>(sum.histories) / s * 60,
      static_cast<unsigned long long>(jobs));
  if (ended && nodes == 1 && seeds >= kMustMeet && sum.losses_told == 0) {
    std::printf("BROKEN no history met a lost cache: the fake kernel or the faults forbid it\n");
    return 1;
  }
  return ended && sum.broken == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t from = 0, seeds = 2000, seed = 0;
  std::uint64_t jobs = std::max(1u, std::thread::hardware_concurrency());
  std::uint64_t told = 10;  // a defect is often met by many
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
    else if (std::strcmp(argv[i], "--jobs") == 0 && more)
      jobs = std::max(1ull, std::stoull(argv[++i]));
    else if (std::strcmp(argv[i], "--seed") == 0 && more)
      one = true, seed = std::stoull(argv[++i]);
    else
      return std::fprintf(
                 stderr,
                 "simulate [--nodes 2] --seeds N [--from S] [--jobs J] [--first] | --seed S [--trace] [--whole]\n"),
             2;
  }
  name_crashes();
  // What was told so far is seen also when the next seed crashes.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // The agent's own log goes to stderr; only a trace wants it.
  corbd::log::set_level(trace ? corbd::log::Level::info : corbd::log::Level::error);
  if (!trace && std::freopen("/dev/null", "w", stderr) == nullptr) return 2;
  return one ? run_one(seed, trace, whole) : run_many(from, seeds, jobs, told);
}
