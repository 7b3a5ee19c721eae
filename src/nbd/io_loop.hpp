// A thread that serves devices, and the way back to it for operations that end on librbd's threads.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>

#include "budget.hpp"
#include "buffers.hpp"
#include "corbd/core/task.hpp"
#include "corbd/device/fd_store.hpp"
#include "ledger.hpp"
#include "polling.hpp"
#include "slow_lines.hpp"

namespace corbd::nbd {

/// An operation that ended on any thread and goes on here.
struct Completion {
  Completion* next_completion = nullptr;
  void (*completed)(Completion& self) noexcept = nullptr;  ///< io thread
};

/// Called once after the batch of completions that asked for it.
class Batched {
 public:
  virtual void batch_ended() = 0;

 protected:
  ~Batched() = default;

 private:
  friend class IoLoop;
  Batched* next_batched_ = nullptr;
  bool asked_ = false;
};

/// Bytes of buffers that are kept for good, for all devices.
inline constexpr std::size_t kKeptBuffers = 32u << 20;

class IoLoop {
 public:
  IoLoop(std::uint64_t bytes_in_flight, std::uint32_t max_request_bytes, std::uint32_t reserved_bytes = 1u << 20,
         std::size_t kept_buffers = kKeptBuffers, device::FdStore* fd_store = nullptr);
  /// Requires that every server of a device is gone.
  ~IoLoop();
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  asio::io_context& io() { return io_; }
  std::uint32_t max_request() const { return max_request_; }

  /// Whether the caller is this io thread.
  bool here() const { return std::this_thread::get_id() == thread_.get_id(); }

  /// Callable from any thread. Wakes the loop once per batch, allocates nothing.
  void complete(Completion& completion);
  /// Io thread, from `completed`. Requests a call of batch_ended() before the loop goes on.
  void at_batch_end(Batched& what);

  /// Io thread, from `completed`: returns when the batch began, as now_us(). The clock is read once for all of it.
  std::int64_t batch_us() const { return batch_us_; }

  /// Io thread, from `completed`: sets the duration of the operation that ended.
  void took(std::int64_t us) { took_us_ = us; }

  /// Io thread. Memory of a peak goes back to the system within 10 s of the peak.
  void give_back_buffer(std::byte* buffer, std::size_t bytes);

  /// Makes a ledger for a new link. If nobody can keep it for a later process, it serves this one all the same.
  Ledger make_ledger() const;
  /// Returns where a later process finds a buffer; Arena::kElsewhere: nowhere.
  std::uint64_t offset(const std::byte* buffer) const { return arena_ ? arena_->offset(buffer) : Arena::kElsewhere; }
  std::uint64_t arena_token() const { return arena_ ? arena_->token() : 0; }

 private:
  std::optional<Arena> arena_;

 public:
  device::FdStore* const fd_store;  ///< stores sockets and ledgers for a later process; nullptr: there is no store
  Buffers buffers;                  ///< io thread
  Budget budget;                    ///< io thread
  SlowLines slow_lines;             ///< io thread
  // Values that any thread may read.
  std::atomic<std::uint64_t> sessions{0};
  std::atomic<std::uint64_t> serving{0};  ///< sessions whose link has not ended
  std::atomic<std::uint64_t> ending{0};   ///< links whose end the kernel has not seen yet

 private:
  struct Wake;
  template <class T>
  struct WakeMemory;
  void run();
  bool poll();
  void run_completions();
  void trim_later();
  void trim();

  const std::uint32_t max_request_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer trims_{io_};
  bool trims_soon_ = false, ends_ = false;
  std::atomic<Completion*> completions_{nullptr};  ///< newest first
  Batched* batched_ = nullptr;
  std::int64_t batch_us_ = 0;
  std::int64_t took_us_ = 0;
  Polling polling_;
  bool polls_ = false;                                    ///< polls before it sleeps
  alignas(std::max_align_t) std::byte wake_memory_[256];  ///< for at most one wake-up under way
  std::thread thread_;
};

}  // namespace corbd::nbd
