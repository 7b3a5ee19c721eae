// `corbd-probe`: kubelet's probes of an agent's pod. kubelet runs it on every node every few seconds, also when the
// node has no time to spare. It is therefore linked with the C library alone, statically, and calls nobody: it looks at
// locks, which the kernel keeps, and at the agent's last pulse. docs/healing.md#probes has its answers.
#include <fcntl.h>
#include <getopt.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>

#include "corbd/handover/pulse.hpp"

namespace {

using corbd::handover::Pulse;

constexpr int kYes = 0, kNo = 1, kMisused = 2;
constexpr long long kLookEveryMs = 250;
constexpr const char* kUsage =
    "corbd-probe alive|ready [--runtime-dir DIR] [--pod UID] [--wait SECONDS] [--hung-after SECONDS]\n"
    "  alive         a process of the pod lives, and its control thread is not hung\n"
    "  ready         the pod's agent serves and could stage a volume, or waits in reserve\n"
    "  --runtime-dir [/run/corbd] the agent's (Env:CORBD_RUNTIME_DIR)\n"
    "  --pod         the pod's UID (Env:POD_UID)\n"
    "  --wait        [0] how long to wait until it is so\n"
    "  --hung-after  [120] a control thread that has not run for so long is hung\n"
    "Exits with 0: it is so; 1: it is not, and why is on stderr; 2: the command line is wrong.\n";

struct Asked {
  const char* what = "";
  bool ready = false;  ///< asks whether the pod is ready, not whether it is alive
  const char* folder = "/run/corbd";
  const char* pod = "";
  long long wait_ms = 0, hung_after_ms = 120'000;
};

/// Reason for a "no"; empty: the answer is yes.
struct Verdict {
  char why[512] = {};
};

[[gnu::format(printf, 1, 2)]] Verdict no(const char* format, ...) {
  Verdict verdict;
  va_list values;
  va_start(values, format);
  std::vsnprintf(verdict.why, sizeof verdict.why, format, values);
  va_end(values);
  return verdict;
}

struct Path {
  char text[PATH_MAX];
};

Path path_of(const Asked& asked, const char* more, const char* end = "") {
  Path path;
  std::snprintf(path.text, sizeof path.text, "%s/%s%s", asked.folder, more, end);
  return path;
}

int open_file(const Path& path) { return ::open(path.text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW); }

/// A live process holds this lock (handover/reserve). The lock that this test takes for a moment goes with the file.
bool is_locked(int file) { return file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

bool keeper_lives(const Asked& asked) {
  char name[512];
  std::snprintf(name, sizeof name, "pods/%s", asked.pod);
  const int file = open_file(path_of(asked, name, ".keeper"));
  const bool lives = is_locked(file);
  if (file >= 0) ::close(file);
  return lives;
}

bool in_reserve(const Asked& asked) {
  char pod[256] = {};
  const int file = open_file(path_of(asked, "in-reserve"));
  if (file < 0) return false;
  const bool same = ::read(file, pod, sizeof pod - 1) > 0 && std::strcmp(pod, asked.pod) == 0;
  ::close(file);
  return same;
}

/// Judges a live agent by its pulse, if it has written one, and the pulse's age.
Verdict judge(const Asked& asked, const Pulse* pulse, long long age_ms) {
  // After a boot the clock restarts, and an old line may be later than now.
  if (pulse != nullptr && age_ms > asked.hung_after_ms)
    return no("the agent's control thread has not run for %lld s: its log and `top -H` say what holds it up",
              age_ms / 1000);
  if (!asked.ready || in_reserve(asked)) return {};
  if (pulse == nullptr)
    return no("this pod's agent does not serve yet: another agent serves, or this one has just started");
  return pulse->ready ? Verdict{} : no("%s", static_cast<const char*>(pulse->why));
}

Verdict look(const Asked& asked) {
  const int file = open_file(path_of(asked, "pods/", asked.pod));
  const bool lives = is_locked(file);
  char line[Pulse::kSize + 1] = {};
  Pulse pulse;
  const bool beats = lives && ::pread(file, line, Pulse::kSize, 0) > 0 && corbd::handover::read_line(line, pulse);
  if (file >= 0) ::close(file);
  if (lives) return judge(asked, beats ? &pulse : nullptr, beats ? corbd::handover::monotonic_ms() - pulse.at_ms : 0);
  if (!keeper_lives(asked))
    return no("no agent of this pod runs: no process locks %s/pods/%s", asked.folder, asked.pod);
  // The keeper starts the next agent after its pause. A kill would only restart the pauses.
  return asked.ready ? no("the agent has died, and its keeper has not started the next one yet") : Verdict{};
}

int misused(const char* why) {
  std::fprintf(stderr, "corbd-probe: %s\n%s", why, kUsage);
  return kMisused;
}

bool read_seconds(const char* text, long long& ms) {
  char* end = nullptr;
  errno = 0;
  const long seconds = std::strtol(text, &end, 10);
  ms = seconds * 1000LL;
  return errno == 0 && end != text && *end == '\0' && seconds >= 0 && seconds <= 86'400;
}

const char* variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

constexpr option kOptions[] = {{"runtime-dir", required_argument, nullptr, 'r'},
                               {"pod", required_argument, nullptr, 'p'},
                               {"wait", required_argument, nullptr, 'w'},
                               {"hung-after", required_argument, nullptr, 'u'},
                               {"help", no_argument, nullptr, 'h'},
                               {nullptr, 0, nullptr, 0}};
constexpr int kUnderstood = -1;

/// Returns the exit code if the program is to end, or kUnderstood.
int read_option(int one, const char* value, Asked& into) {
  switch (one) {
    case 'r':
      into.folder = value;
      return kUnderstood;
    case 'p':
      into.pod = value;
      return kUnderstood;
    case 'w':
    case 'u':
      return read_seconds(value, one == 'w' ? into.wait_ms : into.hung_after_ms)
                 ? kUnderstood
                 : misused("--wait and --hung-after are whole seconds, 86400 at most");
    case 'h':
      return std::fputs(kUsage, stdout) < 0 ? kMisused : kYes;
    default:
      return kMisused;
  }
}

int read_words(int argc, char** argv, Asked& into) {
  for (int one = 0; (one = ::getopt_long(argc, argv, "", kOptions, nullptr)) != -1;)
    if (const int code = read_option(one, optarg, into); code != kUnderstood) return code;
  if (optind + 1 != argc) return misused("say what to ask: alive or ready");
  into.what = argv[optind];
  into.ready = std::strcmp(into.what, "ready") == 0;
  if (!into.ready && std::strcmp(into.what, "alive") != 0) return misused("unknown question: ask alive or ready");
  if (*into.pod == '\0' || std::strchr(into.pod, '/') != nullptr || std::strlen(into.pod) > 255)
    return misused("set POD_UID to the pod's UID (metadata.uid), for the agent too, or give --pod");
  return kUnderstood;
}

}  // namespace

int main(int argc, char** argv) {
  Asked asked;
  asked.folder = variable("CORBD_RUNTIME_DIR", asked.folder);
  asked.pod = variable("POD_UID", asked.pod);
  if (const int code = read_words(argc, argv, asked); code != kUnderstood) return code;
  const long long end = corbd::handover::monotonic_ms() + asked.wait_ms;
  Verdict told;
  for (;;) {
    const Verdict found = look(asked);
    if (*found.why == '\0') return kYes;
    const bool over = corbd::handover::monotonic_ms() >= end;
    // Write it at once: a probe that is killed with its container has no later moment. Nobody reads the output of a
    // probe that succeeds.
    if (*told.why == '\0' || (over && std::strcmp(found.why, told.why) != 0)) {
      std::fprintf(stderr, "corbd-probe %s: %s\n", asked.what, static_cast<const char*>(found.why));
      told = found;
    }
    if (over) return kNo;
    const timespec pause{0, kLookEveryMs * 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}
