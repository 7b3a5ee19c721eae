// A lock held across co_await, first come first served. (asio::strand is no such lock: it serialises handlers, but not
// what lies between two awaits.)
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <deque>
#include <memory>
#include <string>

#include "corbd/core/wait.hpp"

namespace corbd {

/// Control thread only. Outlives its guards.
class AsyncLock {
 public:
  class Guard {
   public:
    Guard() = default;
    Guard(Guard&& other) noexcept : lock_(std::exchange(other.lock_, nullptr)) {}
    Guard& operator=(Guard&& other) noexcept {
      if (this != &other) {
        release();
        lock_ = std::exchange(other.lock_, nullptr);
      }
      return *this;
    }
    ~Guard() { release(); }
    void release();
    explicit operator bool() const { return lock_ != nullptr; }

   private:
    friend class AsyncLock;
    explicit Guard(AsyncLock* lock) : lock_(lock) {}
    AsyncLock* lock_ = nullptr;
  };

  /// `what` names the lock in errors; more than `max_waiters` waiting are refused with exhausted.
  AsyncLock(executor control, Clock& clock, std::string what, std::size_t max_waiters = 64);
  ~AsyncLock();
  AsyncLock(const AsyncLock&) = delete;
  AsyncLock& operator=(const AsyncLock&) = delete;

  task<result<Guard>> lock(Until until);
  bool held() const { return held_; }
  std::size_t waiters() const { return queue_.size(); }

 private:
  void unlock();
  executor control_;
  Clock& clock_;
  std::string what_;
  std::size_t max_waiters_;
  bool held_ = false;
  std::deque<std::shared_ptr<Event>> queue_;
};

/// At most `n` holders at once, first come first served; the same guard discipline as AsyncLock.
class Slots {
 public:
  class Guard {
   public:
    explicit Guard(Slots* slots = nullptr) : slots_(slots) {}
    Guard(Guard&& other) noexcept : slots_(std::exchange(other.slots_, nullptr)) {}
    Guard& operator=(Guard&& other) noexcept {
      if (this != &other) {
        release();
        slots_ = std::exchange(other.slots_, nullptr);
      }
      return *this;
    }
    ~Guard() { release(); }
    void release();

   private:
    Slots* slots_;
  };
  Slots(executor control, Clock& clock, std::string what, std::size_t n);
  task<result<Guard>> take(Until until);
  std::size_t free() const { return free_; }

 private:
  void give();
  executor control_;
  Clock& clock_;
  std::string what_;
  std::size_t free_;
  std::deque<std::shared_ptr<Event>> queue_;
};

}  // namespace corbd
