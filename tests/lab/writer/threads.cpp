#include "threads.hpp"

#include <signal.h>

#include <chrono>
#include <thread>

namespace corbd::writer {

std::atomic<bool> stopping{false};

unsigned run_threads(const Options& options, unsigned count, const std::function<void(unsigned)>& work) {
  struct sigaction action{};
  action.sa_handler = [](int) { stopping = true; };
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  static std::atomic<unsigned> running{0};
  running = count;
  for (unsigned i = 0; i < count; ++i)
    std::thread([work, i] {
      work(i);
      --running;
    }).detach();
  const auto begin = std::chrono::steady_clock::now();
  const auto pause = std::chrono::milliseconds(20);
  const auto limit = std::chrono::seconds(options.seconds);
  while (!stopping && (options.seconds == 0 || std::chrono::steady_clock::now() - begin < limit))
    std::this_thread::sleep_for(pause);
  stopping = true;
  for (int i = 0; running != 0 && i < 60 * 50; ++i) std::this_thread::sleep_for(pause);
  return running;
}

}  // namespace corbd::writer
