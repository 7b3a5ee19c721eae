// Shows what waits for a thread of a pool, and what goes on meanwhile.
#pragma once

#include <future>
#include <utility>

#include "corbd/core/blocking_pool.hpp"

namespace corbd::test {

/// Its one thread does nothing else until it is let go.
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
