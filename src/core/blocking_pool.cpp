#include "corbd/core/blocking_pool.hpp"

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"

namespace corbd {

struct BlockingPool::Threads {
  using All = std::list<std::thread>;

  Threads(std::size_t at_most, std::chrono::milliseconds idle_for) : most(at_most), idle_timeout(idle_for) {}

  const std::size_t most;
  const std::chrono::milliseconds idle_timeout;
  mutable std::mutex mutex;
  std::condition_variable changed, ended;
  std::deque<std::function<void()>> jobs;
  /// Threads in `gone` take no more jobs. They must be joined: libraries such as OpenSSL clean up when a thread ends,
  /// and must not do that while the process exits.
  All alive, gone;
  std::size_t idle = 0;
  bool closing = false;

  /// Waits for a job. False: this thread is to end.
  bool next(std::unique_lock<std::mutex>& lock, std::function<void()>& into) {
    ++idle;
    const auto due = [&] { return closing || !jobs.empty(); };
    // The last idle thread stays: another one might not start, for lack of memory or of process IDs.
    while (!due()) {
      if (idle == 1)
        changed.wait(lock, due);
      else if (!changed.wait_for(lock, idle_timeout, due) && idle > 1)
        break;
    }
    --idle;
    if (jobs.empty()) return false;
    into = std::move(jobs.front());
    jobs.pop_front();
    return true;
  }

  void work(All::iterator self) {
    this_thread_is = ThreadKind::pool;
    std::unique_lock lock(mutex);
    for (std::function<void()> job; next(lock, job);) {
      lock.unlock();
      job();
      // Free the job's captures before the next wait.
      job = nullptr;
      lock.lock();
    }
    All before = std::exchange(gone, {});
    gone.splice(gone.end(), alive, self);
    if (alive.empty()) ended.notify_all();
    lock.unlock();
    join(before);
  }

  /// Call this with the lock held.
  void start() {
    const auto self = alive.emplace(alive.end());
    try {
      *self = std::thread(&Threads::work, this, self);
    } catch (const std::system_error&) {
      alive.erase(self);
      throw;
    }
  }

  static void join(All& all) {
    for (auto& one : all) one.join();
  }
};

BlockingPool::BlockingPool(executor control, Clock& clock, std::size_t threads, std::chrono::milliseconds idle_timeout)
    : control_(control), clock_(clock), threads_(std::make_unique<Threads>(threads, idle_timeout)) {
  const std::lock_guard lock(threads_->mutex);
  threads_->start();
}

BlockingPool::~BlockingPool() {
  std::unique_lock lock(threads_->mutex);
  threads_->closing = true;
  threads_->changed.notify_all();
  threads_->ended.wait(lock, [&] { return threads_->alive.empty(); });
  auto gone = std::exchange(threads_->gone, {});
  lock.unlock();
  Threads::join(gone);
}

void BlockingPool::add(std::function<void()> job) {
  const std::lock_guard lock(threads_->mutex);
  threads_->jobs.push_back(std::move(job));
  if (threads_->idle < threads_->jobs.size() && threads_->alive.size() < threads_->most) try {
      threads_->start();
    } catch (const std::system_error& failed) {
      log::warning("pool.no_thread",
                   {{"error", failed.what()}, {"threads", threads_->alive.size()}, {"at_most", threads_->most}});
    }
  threads_->changed.notify_one();
}

std::size_t BlockingPool::threads() const {
  const std::lock_guard lock(threads_->mutex);
  return threads_->alive.size();
}

}  // namespace corbd
