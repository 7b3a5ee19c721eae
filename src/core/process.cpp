#include "corbd/core/process.hpp"

#include <execinfo.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "corbd/core/file.hpp"

namespace corbd {
namespace {

extern "C" void print_backtrace(int signal_number) {
  std::array<void*, 64> frames;
  const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int frame = 0; frame < depth && stderr_takes_text(); ++frame)
    ::backtrace_symbols_fd(frames.data() + frame, 1, STDERR_FILENO);
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

}  // namespace

bool stderr_takes_text() {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0;
}

void write_to_stderr(std::string_view text) {
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) {
    // There is nobody to tell.
  }
}

void fill_standard_streams() {
  // The kernel gives the lowest free number, and the numbers below this one are open already.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
}

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

result<> become_io_flusher() {
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0)
    return Error{errc::permission_denied,
                 std::string("PR_SET_IO_FLUSHER: ") + ::strerror(errno) +
                     ": give the process CAP_SYS_RESOURCE, or memory pressure can block it on its own devices"};
  return {};
}

void forbid_core_dumps() {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  // The limit does not apply if core_pattern is a pipe.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

bool core_dumps_forbidden() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max == 0;
}

void install_signal_handlers() {
  ::signal(SIGPIPE, SIG_IGN);
  std::array<void*, 1> warm_up;  // the first backtrace() loads libgcc: not inside a signal handler
  ::backtrace(warm_up.data(), 1);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::signal(number, print_backtrace);
}

result<Fd> lock_folder(const std::string& folder) {
  const std::string path = folder + "/lock";
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return Error{errc::state_write, "opening " + path + ": " + ::strerror(errno)};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    auto holder = read_file(path, 64);
    std::string pid = holder ? *holder : "unknown";
    while (!pid.empty() && pid.back() == '\n') pid.pop_back();
    if (pid.empty()) pid = "unknown";
    return Error{errc::in_use, folder + " is held by the agent with pid " + pid +
                                   ": end that one first, or give this one its own --state-dir"};
  }
  if (auto noted = note_lock_holder(folder, fd); !noted) return noted.error();
  return fd;
}

result<> note_lock_holder(const std::string& folder, const Fd& lock) {
  // The pid is for people only. On a full disk a block that the file already has can still be written.
  const std::string pid = std::to_string(::getpid()) + "\n";
  const auto length = static_cast<ssize_t>(pid.size());
  if (::pwrite(lock.get(), pid.data(), pid.size(), 0) == length && ::ftruncate(lock.get(), length) != 0)
    return Error{errc::state_write, "truncating " + folder + "/lock: " + ::strerror(errno)};
  return {};
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

pid_t parent_of(const std::string& proc, pid_t pid) {
  const auto stat = read_file(proc + "/" + std::to_string(pid) + "/stat", 4096);
  // A process's name may contain anything (proc(5)). Its state and its parent follow.
  const auto name_ends = stat ? stat->rfind(") ") : std::string::npos;
  if (name_ends == std::string::npos || name_ends + 4 >= stat->size()) return 0;
  return static_cast<pid_t>(std::strtol(stat->c_str() + name_ends + 4, nullptr, 10));
}

void begin_anew() {
  auto words = read_file("/proc/self/cmdline", 1u << 20);
  std::error_code failed;
  // Execute it by its name. Otherwise the process would be called "exe".
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!words || failed) return;
  std::vector<char*> arguments;
  for (std::size_t at = 0; at < words->size(); at = words->find('\0', at) + 1) arguments.push_back(words->data() + at);
  arguments.push_back(nullptr);
  // Close also descriptors that a library opened without CLOEXEC.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execv(program.c_str(), arguments.data());
}

std::string kernel_release() {
  utsname system{};
  return ::uname(&system) == 0 ? system.release : "";
}

result<std::string> read_boot_id() {
  auto id = read_file("/proc/sys/kernel/random/boot_id", 64);
  if (id)
    while (!id->empty() && id->back() == '\n') id->pop_back();
  return id;
}

result<> check_tmpfs(const std::string& folder) {
  struct statfs found{};
  if (::statfs(folder.c_str(), &found) != 0) return Error{errc::failed_precondition, folder + ": " + ::strerror(errno)};
  if (found.f_type != TMPFS_MAGIC && found.f_type != RAMFS_MAGIC)
    return Error{errc::failed_precondition,
                 folder + " is not on tmpfs: Ceph keys would reach a disk. Give --runtime-dir a memory-backed folder"};
  return {};
}

}  // namespace corbd
