#include "corbd/core/blocking_pool.hpp"

#include <future>
#include <thread>

#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

/// Jobs that run until they are told to end.
class Jobs {
 public:
  ~Jobs() { end(); }
  void add(BlockingPool& pool, std::size_t jobs) {
    for (std::size_t i = 0; i < jobs; ++i)
      pool.post([this] {
        ++running_;
        may_end_.wait();
      });
  }
  void end() {
    if (!std::exchange(ended_, true)) gate_.set_value();
  }
  std::size_t running() const { return running_; }

 private:
  std::promise<void> gate_;
  std::shared_future<void> may_end_{gate_.get_future()};
  std::atomic<std::size_t> running_{0};
  bool ended_ = false;
};

template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

/// Its jobs end before the pool waits for them, also where a check fails.
struct Pooled {
  explicit Pooled(std::size_t threads, std::chrono::milliseconds idle_timeout = BlockingPool::kIdleTimeout)
      : pool(loop.control(), loop.clock, threads, idle_timeout) {}
  ~Pooled() {
    first.end();
    second.end();
  }
  bool has_threads(std::size_t count) const {
    return eventually([&] { return pool.threads() == count; });
  }

  test::Loop loop;
  Jobs first, second;
  BlockingPool pool;
};

}  // namespace

TEST_CASE("a pool that has nothing to do has one thread") {
  const Pooled pooled(4);
  CHECK(pooled.pool.threads() == 1);
}

TEST_CASE("a pool starts a thread for a job that would wait, up to its limit") {
  Pooled pooled(3);
  pooled.first.add(pooled.pool, 5);
  CHECK(eventually([&] { return pooled.first.running() == 3; }));
  CHECK(pooled.pool.threads() == 3);
  CHECK(pooled.first.running() == 3);
}

TEST_CASE("idle threads end after a while, all but one") {
  Pooled pooled(3, 20ms);
  pooled.first.add(pooled.pool, 3);
  REQUIRE(pooled.has_threads(3));
  pooled.first.end();
  CHECK(pooled.has_threads(1));
}

TEST_CASE("a pool whose idle threads have ended starts threads again") {
  Pooled pooled(3, 20ms);
  pooled.first.add(pooled.pool, 3);
  pooled.first.end();
  REQUIRE(pooled.has_threads(1));
  pooled.second.add(pooled.pool, 2);
  CHECK(eventually([&] { return pooled.second.running() == 2; }));
  CHECK(pooled.pool.threads() == 2);
}

TEST_CASE("one idle thread stays beside busy ones, for a hung call must not have the only thread") {
  Pooled pooled(3, 20ms);
  pooled.first.add(pooled.pool, 1);
  pooled.second.add(pooled.pool, 2);
  REQUIRE(pooled.has_threads(3));
  pooled.second.end();
  REQUIRE(pooled.has_threads(2));
  std::this_thread::sleep_for(100ms);
  CHECK(pooled.pool.threads() == 2);
}

TEST_CASE("a pool runs every posted job before it ends") {
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

TEST_CASE("a pool ends only after its threads, with what libraries clean up when a thread ends") {
  static std::atomic<int> tidied;
  struct Tidies {
    ~Tidies() {
      std::this_thread::sleep_for(20ms);
      ++tidied;
    }
  };
  tidied = 0;
  {
    test::Loop loop;
    BlockingPool pool(loop.control(), loop.clock, 3, 1ms);
    Jobs jobs;
    for (int i = 0; i < 3; ++i) pool.post([] { static thread_local Tidies at_its_end; });
    jobs.add(pool, 3);
    CHECK(eventually([&] { return jobs.running() == 3; }));
    jobs.end();
    CHECK(eventually([&] { return pool.threads() == 1; }));
  }
  CHECK(tidied > 0);
  const int then = tidied;
  std::this_thread::sleep_for(100ms);
  CHECK(tidied == then);
}
