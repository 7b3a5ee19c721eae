// Runs blocking calls in parallel, each on a thread of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace corbd::rbd {

/// Calls work(0) to work(count - 1), up to `most` at a time. Work that gets no thread, as on a node with too many, runs
/// on this one. `Thread` is for tests.
template <class Thread = std::jthread, class Work>
void at_once(std::size_t count, std::size_t most, const Work& work) {
  for (std::size_t from = 0; from < count; from += most) {
    std::vector<Thread> threads;
    threads.reserve(most);
    for (std::size_t i = from; i < std::min(from + most, count); ++i) {
      try {
        threads.emplace_back([&work, i] { work(i); });
      } catch (const std::system_error&) {
        work(i);
      }
    }
  }
}

}  // namespace corbd::rbd
