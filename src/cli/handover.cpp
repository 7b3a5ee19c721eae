#include "handover.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/process.hpp"
#include "question.hpp"

namespace corbd::cli {
namespace {

constexpr std::size_t kLongestLine = 1u << 20;
constexpr int kLookEvery = 50;  // ms

/// Starts the next agent. It is nobody's child: it outlives this command, and systemd hears of its end as of any other.
/// Returns its process; 0: there is none.
pid_t start(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return 0;
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t between = ::fork();
  if (between == 0) {
    ::setsid();
    const pid_t next = ::fork();
    if (next == 0) {
      // Runs the program of the package that is installed now.
      ::execv("/proc/self/exe", argv.data());
      ::_exit(126);
    }
    ::_exit(::write(to.get(), &next, sizeof next) == sizeof next ? 0 : 1);
  }
  to.reset();
  pid_t next = 0;
  const bool told = between > 0 && ::read(from.get(), &next, sizeof next) == sizeof next;
  if (between > 0) ::waitpid(between, nullptr, 0);
  return told && next > 0 ? next : 0;
}

}  // namespace

std::vector<std::string> next_arguments(std::string_view cmdline) {
  std::vector<std::string> words;
  while (!cmdline.empty()) {
    const auto end = std::min(cmdline.find('\0'), cmdline.size());
    words.emplace_back(cmdline.substr(0, end));
    cmdline.remove_prefix(std::min(end + 1, cmdline.size()));
  }
  if (words.size() < 2 || words[1] != "run") return {};
  if (std::ranges::find(words, "--handover") == words.end()) words.emplace_back("--handover");
  return words;
}

namespace {

/// Serves ExecReload= of systemd's unit. It calls no agent; it starts one.
struct Handover final : AdminSubcommand {
  static constexpr const char* kName = "handover";
  static constexpr const char* kDescription =
      "Start the next agent, with the arguments of the one that serves and this program: it takes the devices over "
      "without a break, and the serving one ends. For `systemctl reload corbd`: the next agent is in the control group "
      "of whoever gives this command";

  explicit Handover(CLI::App& command) : AdminSubcommand(command) {
    timeout_s = 280;
    add_timeout(command, timeout_s);
  }
  /// Returns once the next agent serves.
  int run() override {
    const auto socket = admin_socket(folder());
    const auto serving = pid_of_agent(socket);
    if (!serving) return tell(serving.error().text, kNoAgent);
    const auto line = read_file("/proc/" + std::to_string(*serving) + "/cmdline", kLongestLine);
    if (!line) return tell(line.error().text);
    auto words = next_arguments(*line);
    if (words.empty())
      return tell("process " + std::to_string(*serving) +
                  " was not started as `corbd run`: start the next agent by hand");
    const pid_t next = start(std::move(words));
    // The next agent may have ended already.
    const Fd process(next > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, next, 0)) : -1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
    while (process && std::chrono::steady_clock::now() < end) {
      // With --keeper the agent is a child of the process that was started.
      if (const auto now = pid_of_agent(socket); now && (*now == next || parent_of("/proc", *now) == next)) {
        std::cout << "agent " << *now << " serves, in the place of " << *serving << std::endl;
        return 0;
      }
      pollfd gone{process.get(), POLLIN, 0};
      if (::poll(&gone, 1, kLookEvery) > 0)
        return tell("the next agent ended, and its log says why; agent " + std::to_string(*serving) +
                    " serves on unless its log says otherwise");
    }
    if (!process) return tell("the next agent did not start, or ended at once: its log says why");
    return tell("the next agent (" + std::to_string(next) + ") does not serve yet: its log says what it waits for");
  }
};

}  // namespace

void add_handover(CLI::App& app, Chosen& chosen) { add<Handover>(app, chosen); }

}  // namespace corbd::cli
