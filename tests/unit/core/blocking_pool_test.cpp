#include "corbd/core/blocking_pool.hpp"

#include <future>
#include <thread>

#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

struct Pooled {
  explicit Pooled(std::size_t threads, std::chrono::milliseconds spare = BlockingPool::kSpare)
      : pool(loop.control(), loop.clock, threads, spare) {}
  /// Jobs that all run at once, and end when they are told to.
  void fill(std::size_t jobs) {
    for (std::size_t i = 0; i < jobs; ++i)
      pool.post([this] {
        ++running;
        may_end.wait();
        ++ended;
      });
  }
  bool eventually_running(std::size_t jobs) const {
    for (int i = 0; i < 5000 && running != jobs; ++i) std::this_thread::sleep_for(1ms);
    return running == jobs;
  }

  test::Loop loop;
  std::promise<void> gate;
  std::shared_future<void> may_end{gate.get_future()};
  std::atomic<std::size_t> running{0}, ended{0};
  BlockingPool pool;
};

}  // namespace

TEST_CASE("a pool that has nothing to do has one thread") {
  const Pooled pooled(4);
  CHECK(pooled.pool.threads() == 1);
}

TEST_CASE("a pool starts a thread for a job that would wait, up to its limit") {
  Pooled pooled(3);
  pooled.fill(5);
  CHECK(pooled.eventually_running(3));
  CHECK(pooled.pool.threads() == 3);
  CHECK(pooled.running == 3);
  pooled.gate.set_value();
}

TEST_CASE("all threads but one end when they have had no job for a while, and more start again when needed") {
  Pooled pooled(3, 20ms);
  pooled.fill(3);
  REQUIRE(pooled.eventually_running(3));
  pooled.gate.set_value();
  for (int i = 0; i < 5000 && pooled.pool.threads() != 1; ++i) std::this_thread::sleep_for(1ms);
  CHECK(pooled.pool.threads() == 1);
  pooled.fill(2);
  CHECK(pooled.eventually_running(5));
}

TEST_CASE("a pool that ends first carries out every job that was posted") {
  std::atomic<std::size_t> done{0};
  test::Loop loop;
  {
    BlockingPool pool(loop.control(), loop.clock, 2);
    for (int i = 0; i < 100; ++i) pool.post([&] { ++done; });
  }
  CHECK(done == 100);
}

TEST_CASE("the jobs of a pool with one thread run in the order in which they were posted") {
  std::vector<int> order;
  test::Loop loop;
  {
    BlockingPool pool(loop.control(), loop.clock, 1);
    for (int i = 0; i < 100; ++i) pool.post([&, i] { order.push_back(i); });
  }
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(order.size() == 100);
}
