// Occupies a pool, to show what waits for its thread and what does not.
#pragma once

#include <future>
#include <utility>

#include "corbd/core/blocking_pool.hpp"

namespace corbd::test {

/// Keeps the pool's one thread busy until it is released.
class BusyPool {
 public:
  explicit BusyPool(BlockingPool& pool) {
    pool.post([let_go = let_go_.get_future().share()] { let_go.wait(); });
  }
  ~BusyPool() { let_go(); }
  BusyPool(const BusyPool&) = delete;
  BusyPool& operator=(const BusyPool&) = delete;
  void let_go() {
    if (!std::exchange(gone_, true)) let_go_.set_value();
  }

 private:
  std::promise<void> let_go_;
  bool gone_ = false;
};

}  // namespace corbd::test
