#include "corbd/core/blocking_pool.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "corbd/core/log.hpp"

namespace corbd {

/// The threads share it: the last one touches it after the pool has gone.
struct BlockingPool::Threads {
  Threads(std::size_t at_most, std::chrono::milliseconds idle_for) : most(at_most), idle_timeout(idle_for) {}

  const std::size_t most;
  const std::chrono::milliseconds idle_timeout;
  mutable std::mutex mutex;
  std::condition_variable changed, ended;
  std::deque<std::function<void()>> jobs;
  std::size_t alive = 0, idle = 0;
  bool closing = false;

  /// False: no job is left to wait for.
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

  static void work(const std::shared_ptr<Threads>& of) {
    std::unique_lock lock(of->mutex);
    for (std::function<void()> job; of->next(lock, job);) {
      lock.unlock();
      job();
      // What it captured goes before the next wait.
      job = nullptr;
      lock.lock();
    }
    if (--of->alive == 0) of->ended.notify_all();
  }

  /// With the lock held.
  static void start(const std::shared_ptr<Threads>& of) {
    std::thread(work, of).detach();
    ++of->alive;
  }
};

BlockingPool::BlockingPool(executor control, Clock& clock, std::size_t threads, std::chrono::milliseconds idle_timeout)
    : control_(control), clock_(clock), threads_(std::make_shared<Threads>(threads, idle_timeout)) {
  const std::lock_guard lock(threads_->mutex);
  Threads::start(threads_);
}

BlockingPool::~BlockingPool() {
  std::unique_lock lock(threads_->mutex);
  threads_->closing = true;
  threads_->changed.notify_all();
  threads_->ended.wait(lock, [&] { return threads_->alive == 0; });
}

void BlockingPool::add(std::function<void()> job) {
  const std::lock_guard lock(threads_->mutex);
  threads_->jobs.push_back(std::move(job));
  if (threads_->idle < threads_->jobs.size() && threads_->alive < threads_->most) try {
      Threads::start(threads_);
    } catch (const std::system_error& failed) {
      log::warning("pool.no_thread",
                   {{"error", failed.what()}, {"threads", threads_->alive}, {"at_most", threads_->most}});
    }
  threads_->changed.notify_one();
}

std::size_t BlockingPool::threads() const {
  const std::lock_guard lock(threads_->mutex);
  return threads_->alive;
}

}  // namespace corbd
