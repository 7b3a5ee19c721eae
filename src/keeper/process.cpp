// The keeper's process. It has no thread, no library but this project's own, and little memory: it must survive when
// all else fails.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/keeper/keeper.hpp"
#include "policy.hpp"

namespace corbd::keeper {
namespace {

constexpr const char* kVariable = "CORBD_KEEPER_SOCKET";
/// Exit code of a program that could not be started, as in a shell. The dynamic linker ends with it too.
constexpr int kNotBegun = 127;

using SteadyClock = std::chrono::steady_clock;

class Keeper {
 public:
  explicit Keeper(std::span<char* const> arguments) : arguments_(arguments.begin(), arguments.end()) {
    arguments_.push_back(nullptr);
  }

  int run() {
    raise_descriptor_limit();
    // The keeper's allocations must not wait for a device that waits for the agent.
    if (auto flusher = become_io_flusher(); !flusher)
      log::warning("keeper.io_flusher", {{"error", flusher.error().text}});
    sigset_t heard;
    ::sigemptyset(&heard);
    for (const int number : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&heard, number);
    ::sigprocmask(SIG_BLOCK, &heard, &before_);
    signals_ = Fd(::signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) return fails("waiting for signals");
    start();
    while (!code_) wait();
    store_.let_go();
    return *code_;
  }

 private:
  int fails(const char* doing) {
    log::error("keeper.failed", {{"error", std::string(doing) + ": " + std::strerror(errno)}});
    code_ = 1;
    return 1;
  }

  void start() {
    starts_at_.reset();
    auto pair = make_pair();
    if (!pair) {
      fails("starting the agent");
      return;
    }
    ours_ = std::move(pair->first);
    store_.give_all(ours_.get());
    look_at_links();
    const pid_t self = ::getpid();
    agent_ = ::fork();
    if (agent_ == 0) become_agent(pair->second.get(), self);
    if (agent_ < 0) died(kNotBegun);
  }

  [[noreturn]] void become_agent(int socket, pid_t keeper) {
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    // The keeper's supervisor knows no other process. It starts another agent, which needs the state directory, and a
    // hung agent would survive any other signal.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != keeper) ::_exit(1);
    ::fcntl(socket, F_SETFD, 0);
    ::setenv(kVariable, std::to_string(socket).c_str(), 1);
    ::execv("/proc/self/exe", arguments_.data());
    ::_exit(kNotBegun);
  }

  void wait() {
    int patience = -1;
    if (starts_at_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*starts_at_ - SteadyClock::now());
      if (left.count() <= 0) return start();
      patience = static_cast<int>(left.count());
    }
    pollfd asked[] = {{signals_.get(), POLLIN, 0}, {ours_.get(), POLLIN, 0}};
    ::poll(asked, ours_ ? 2 : 1, patience);
    if (ours_ && (asked[1].revents & POLLIN) != 0) {
      store_.hear(ours_.get());
      look_at_links();
    }
    // The agent has closed its end: it is about to die, or has no use for a keeper. Do not poll that end in a loop.
    if (ours_ && (asked[1].revents & (POLLHUP | POLLERR)) != 0) ours_.reset();
    hear_signals();
    reap();
  }

  void look_at_links() {
    if (!store_.all_taken())
      whole_since_.reset();
    else if (!whole_since_)
      whole_since_ = SteadyClock::now();
  }

  void hear_signals() {
    signalfd_siginfo signal;
    while (::read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
      if (signal.ssi_signo == SIGCHLD) continue;
      told_to_end_ = true;
      if (agent_ > 0)
        ::kill(agent_, static_cast<int>(signal.ssi_signo));
      else
        code_ = 0;
    }
  }

  /// The first process of a container inherits others' children, too. An agent that is waited for has no thread left.
  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;)
      if (pid == agent_) ended(status);
  }

  void ended(int status) {
    agent_ = 0;
    if (ours_) store_.hear(ours_.get());
    ours_.reset();
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (WIFEXITED(status) && code != kNotBegun) return left(code);
    died(code);
  }

  /// The agent was killed, crashed, or could not be started for lack of memory.
  void died(int code) {
    const int signal = code > 128 ? code - 128 : 0;
    const auto now = SteadyClock::now();
    const bool served_well = whole_since_ && now - *whole_since_ >= kServesWell;
    whole_since_.reset();
    const Restart restart = policy_.died(now, served_well);
    store_.note_death(signal, now, restart.pause);
    const bool keeps = trusts(signal) && restart.keeps_links;
    if (!keeps && !store_.stored().links.empty()) {
      log::warning("keeper.links_let_go",
                   {{"links", store_.stored().links.size()},
                    {"cause", trusts(signal) ? "agents keep dying, perhaps because of what the last one left"
                                             : "the agent crashed, and may have corrupted any memory before"},
                    {"effect", "every device is healed"}});
    }
    if (!keeps) store_.let_go();
    if (restart.pause >= kStartsAgainWithin) store_.drop_listeners();
    if (told_to_end_) {
      // The signal may have killed the agent before it installed its handler.
      code_ = signal == SIGTERM || signal == SIGINT ? 0 : code;
      return;
    }
    log::warning("keeper.starts_again",
                 {{"signal", signal},
                  {"links", store_.stored().links.size()},
                  {"after_ms", std::chrono::ceil<std::chrono::milliseconds>(restart.pause).count()}});
    starts_at_ = now + restart.pause;
  }

  /// The agent ended by itself.
  void left(int code) {
    if (code == kBeginsAnew && !told_to_end_) {
      store_.begin_anew();
      return start();
    }
    code_ = code == kBeginsAnew ? 0 : code;
  }

  std::vector<char*> arguments_;
  sigset_t before_{};
  Fd signals_, ours_;
  Store store_;
  Policy policy_;
  pid_t agent_ = 0;
  bool told_to_end_ = false;
  std::optional<SteadyClock::time_point> starts_at_;
  std::optional<SteadyClock::time_point> whole_since_;  ///< since when the agent has had every link
  std::optional<int> code_;
};

}  // namespace

Fd socket_of_keeper() {
  const char* const number = std::getenv(kVariable);
  if (number == nullptr) return {};
  const int fd = std::atoi(number);
  ::unsetenv(kVariable);
  if (fd <= 2 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return {};
  // Without this the process's name would be "exe".
  ::prctl(PR_SET_NAME, "corbd");
  return Fd(fd);
}

int run(std::span<char* const> arguments) { return Keeper(arguments).run(); }

}  // namespace corbd::keeper
