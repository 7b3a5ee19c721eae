// Waits for a condition of the real world.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <thread>

#include "corbd/core/task.hpp"

namespace corbd::test {

/// The bound is far above the expected time.
template <class Condition>
bool eventually(asio::io_context& io, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    io.restart();
    io.run_one_for(std::chrono::milliseconds(10));
  }
  return true;
}

template <class Condition>
bool eventually(Condition condition) {
  asio::io_context idle;
  return eventually(idle, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return condition();
  });
}

}  // namespace corbd::test
