#include "command.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

namespace corbd::bench {

task<bool> run_command(executor control, Clock& clock, std::vector<std::string> words, CancelScope& leaving) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ);
  if (failed != 0) {
    std::fprintf(stderr, "corbd-bench: %s: %s\n", argv[0], std::strerror(failed));
    co_return false;
  }
  Promise<int> ended(control, clock);
  const auto future = ended.future();
  std::thread waits([child, ended] {
    int status = 0;
    ::waitpid(child, &status, 0);
    ended.set(status);
  });
  auto status = co_await future.get({time_point::max(), &leaving}, "the command");
  if (!status) {
    ::kill(child, SIGTERM);
    status = co_await future.get({}, "the command");
  }
  waits.join();
  co_return status && *status == 0;
}

}  // namespace corbd::bench
