#include "run.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "corbd/core/fd.hpp"
#include "corbd/host/tools.hpp"

namespace corbd::host {
namespace {

constexpr std::size_t kOutputLimit = 2048;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> plain_environment() {
  std::vector<std::string> kept{"LC_ALL=C"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("LC_") && !text.starts_with("LANG")) kept.emplace_back(text);
  }
  return kept;
}

int spawn_tool(const std::string& program, std::vector<std::string> argv, int output, Capture capture, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t ours;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (capture == Capture::everything)
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  else
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  // A helper ignores SIGPIPE; a tool should not. It keeps ignoring the signals that stop a group: a half-made
  // filesystem helps nobody.
  sigemptyset(&ours);
  sigaddset(&ours, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &ours);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  auto environment = plain_environment();
  const int refused =
      ::posix_spawn(&pid, program.c_str(), &files, &attributes, pointers(argv).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return refused;
}

std::string read_last_words(int from) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > kOutputLimit) text.erase(0, text.size() - kOutputLimit);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  // Tools print bytes; the text travels as JSON.
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = ' ';
  return text;
}

}  // namespace

std::string find_program(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "" : path;
  const std::string all = std::string(folders) + ":/usr/sbin:/sbin:/usr/bin:/bin";
  for (std::size_t at = 0; at < all.size();) {
    const auto colon = std::min(all.find(':', at), all.size());
    const std::string candidate = all.substr(at, colon - at) + "/" + program;
    if (candidate.front() == '/' && colon != at && ::access(candidate.c_str(), X_OK) == 0) return candidate;
    at = colon + 1;
  }
  return {};
}

result<Ended> run(const std::vector<std::string>& argv, Capture capture) {
  const std::string program = find_program(argv.front());
  if (program.empty()) return Error{errc::not_found, argv.front() + " is not installed"};
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Error{errc::unavailable, "making a pipe for " + argv.front() + ": " + std::strerror(errno)};
  const Fd ours(ends[0]);
  Fd theirs(ends[1]);
  pid_t pid = 0;
  const int refused = spawn_tool(program, argv, theirs.get(), capture, pid);
  if (refused != 0) return Error{errc::unavailable, "starting " + program + ": " + std::strerror(refused)};
  theirs.reset();
  Ended ended;
  ended.output = read_last_words(ours.get());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return Error{errc::internal, "waiting for " + program + ": " + std::strerror(errno)};
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

std::string describe(const Ended& ended) {
  const std::string how = ended.signal != 0 ? "killed by signal " + std::to_string(ended.signal)
                                            : "exit code " + std::to_string(ended.code);
  return ended.output.empty() ? how : how + ": " + ended.output;
}

}  // namespace corbd::host
