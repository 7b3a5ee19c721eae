#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "helper_wire.hpp"

namespace corbd::helper_wire {
namespace {

Error spawn_failed(std::string_view doing, int error) {
  return {errc::unavailable, "starting a helper: " + std::string(doing) + ": " + std::strerror(error)};
}

struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

void plan_files(SpawnPlan& plan, int socket) {
  posix_spawn_file_actions_addopen(&plan.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&plan.files, socket, kHelperSocket);
  // Third-party libraries may have opened something without CLOEXEC.
  posix_spawn_file_actions_addclosefrom_np(&plan.files, kHelperSocket + 1);
}

// The helper gets its own session, as by setsid(2): neither Ctrl-C on our terminal nor a kill of our group may end a
// helper in the middle of a mkfs.
void plan_signals(SpawnPlan& plan) {
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigdelset(&all, SIGKILL);
  sigdelset(&all, SIGSTOP);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&plan.attributes, &all);
  posix_spawnattr_setsigmask(&plan.attributes, &none);
  posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

}  // namespace

result<Child> spawn(const std::string& program, const std::vector<std::string>& arguments) {
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return spawn_failed("socketpair", errno);
  Child child;
  child.socket = Fd(ends[0]);
  const Fd theirs(ends[1]);
  // The kernel doubles this value. A whole message has to fit.
  const int room = static_cast<int>(kMaxMessage);
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  ::fcntl(child.socket.get(), F_SETFL, O_NONBLOCK);

  SpawnPlan plan;
  plan_files(plan, theirs.get());
  plan_signals(plan);
  // Process lists show a helper under the name by which its agent was started.
  std::vector<char*> argv{program_invocation_name};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int refused = ::posix_spawn(&child.pid, program.c_str(), &plan.files, &plan.attributes, argv.data(), environ);
  if (refused != 0) return spawn_failed(program, refused);

  // Call it by number, because sys/pidfd.h of Debian 12 lacks extern "C". CLOEXEC is implied. If this fails, the helper
  // ends by itself when its socket closes.
  child.pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.pidfd) return spawn_failed("pidfd_open", errno);
  return child;
}

}  // namespace corbd::helper_wire
