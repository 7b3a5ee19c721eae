#include "corbd/handover/reserve.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/handover/leaves_by_signal.hpp"
#include "corbd/handover/pulse.hpp"

namespace corbd::handover {
namespace {

constexpr std::size_t kLongestPod = 256;
constexpr std::chrono::milliseconds kLooksEvery{200};
// Each try fails only if another pod begins in that very moment.
constexpr int kMostTries = 100;

std::string note_path(const std::string& runtime_dir) { return runtime_dir + "/in-reserve"; }
std::string call_path(const std::string& runtime_dir) { return runtime_dir + "/reserve-called"; }

std::string pod_path(const std::string& runtime_dir, const std::string& pod) { return runtime_dir + "/pods/" + pod; }

std::vector<std::string> pods_at(const std::string& folder) {
  std::vector<std::string> pods;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    pods.push_back(entry.path().filename().string());
  return pods;
}

/// Removes a file under its lock. A process that opened it meanwhile waits for the lock, and then sees that the file is
/// gone.
void remove_unless_locked(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
}

bool is_at(const Fd& file, const std::string& path) {
  struct stat opened{}, there{};
  return ::fstat(file.get(), &opened) == 0 && ::lstat(path.c_str(), &there) == 0 && opened.st_dev == there.st_dev &&
         opened.st_ino == there.st_ino;
}

/// Takes a shared lock, because a process that ends may still have it when the next one starts.
Fd lock_for_life(const std::string& path) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    // A process that tests the lock holds it briefly.
    if (!file || ::flock(file.get(), LOCK_SH) != 0) return {};
    if (is_at(file, path)) return file;
  }
  return {};
}

std::string pod_at(const std::string& path) {
  const auto pod = read_file(path, kLongestPod);
  return pod ? *pod : "";
}

/// An agent in reserve locks the note while it waits, so that nobody waits for a dead one. Invalid: another process has
/// the lock.
Fd lock_note(const std::string& runtime_dir) {
  Fd note(::open(note_path(runtime_dir).c_str(), O_RDONLY | O_CLOEXEC));
  return note && ::flock(note.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(note) : Fd();
}

/// Whether this pod was called. A call counts once.
bool called(const std::string& runtime_dir, const std::string& pod) {
  const std::string path = call_path(runtime_dir);
  return pod_at(path) == pod && ::unlink(path.c_str()) == 0;
}

/// Reaps helpers that this process started before it executed itself anew.
void bury_children() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace

std::string pod_in_reserve(const std::string& runtime_dir) { return pod_at(note_path(runtime_dir)); }

result<> note_pod_in_reserve(const std::string& runtime_dir, const std::string& pod) {
  // Earlier calls of this pod are over.
  ::unlink(call_path(runtime_dir).c_str());
  return write_durably(note_path(runtime_dir), pod, 0600);
}

void leave_reserve(const std::string& runtime_dir, const std::string& pod) {
  if (pod_in_reserve(runtime_dir) == pod) ::unlink(note_path(runtime_dir).c_str());
}

Fd say_pod_lives(const std::string& runtime_dir, const std::string& pod) {
  const std::string folder = runtime_dir + "/pods";
  if (auto made = make_folder(folder, 0700); !made) return {};
  for (const auto& other : pods_at(folder))
    if (other != pod) remove_unless_locked(pod_path(runtime_dir, other));
  Fd file = lock_for_life(pod_path(runtime_dir, pod));
  if (file)
    end_pulse(file.get());
  else
    log::error("handover.pod_not_noted",
               {{"file", pod_path(runtime_dir, pod)},
                {"error", std::strerror(errno)},
                {"effect", "kubelet's probes find this pod's agent dead, and kubelet restarts it"}});
  return file;
}

Fd say_keeper_lives(const std::string& runtime_dir, const std::string& pod) {
  return say_pod_lives(runtime_dir, pod + ".keeper");
}

namespace {

void write_pulse(int pod_file, const Pulse& pulse) {
  char line[Pulse::kSize];
  write_line(pulse, line);
  if (::pwrite(pod_file, line, sizeof line, 0) != static_cast<ssize_t>(sizeof line)) end_pulse(pod_file);
}

}  // namespace

void note_pulse(int pod_file, const std::string& why_not_ready) {
  Pulse pulse;
  pulse.at_ms = monotonic_ms();
  pulse.ready = why_not_ready.empty();
  std::snprintf(pulse.why, sizeof pulse.why, "%s", why_not_ready.c_str());
  write_pulse(pod_file, pulse);
}

void note_last_pulse(int pod_file, std::chrono::milliseconds leaves_within) {
  Pulse pulse;
  pulse.at_ms = monotonic_ms() + leaves_within.count();
  pulse.ready = true;
  write_pulse(pod_file, pulse);
}

void end_pulse(int pod_file) {
  if (::ftruncate(pod_file, 0) != 0) log::warning("handover.pulse_not_ended", {{"error", std::strerror(errno)}});
}

bool pod_lives(const std::string& runtime_dir, const std::string& pod) {
  if (pod.empty()) return false;
  const Fd file(::open(pod_path(runtime_dir, pod).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

result<bool> call_reserve(const std::string& runtime_dir, const std::string& own_pod) {
  const std::string pod = pod_in_reserve(runtime_dir);
  if (pod.empty() || pod == own_pod || lock_note(runtime_dir)) return false;
  if (auto written = write_durably(call_path(runtime_dir), pod, 0600); !written) return written.error();
  return true;
}

result<Fd> wait_in_reserve(const std::string& state_dir, const std::string& runtime_dir, const std::string& pod,
                           duration free_for) {
  const LeavesBySignal leaves;
  Fd waits;
  log::info("handover.in_reserve", {{"waits_for", "the end of the agent that serves, or of this pod"}});
  std::optional<time_point> free_since;
  for (;;) {
    // A process that tests whether a pod waits here holds the lock briefly.
    if (!waits) waits = lock_note(runtime_dir);
    if (called(runtime_dir, pod)) return Fd();
    auto lock = lock_folder(state_dir);
    bury_children();
    if (!lock && lock.error().code != errc::in_use) return lock;
    const auto now = std::chrono::steady_clock::now();
    if (!lock)
      free_since.reset();
    else if (now - free_since.emplace(free_since.value_or(now)) >= free_for)
      return lock;
    lock = Fd();
    std::this_thread::sleep_for(kLooksEvery);
  }
}

}  // namespace corbd::handover
