#include "io_loop.hpp"

#include <pthread.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"
#include "link_state.hpp"

namespace corbd::nbd {
namespace {
// Memory of a peak is returned after twice this time, because the peak counts for the period in which it ended.
constexpr std::chrono::seconds kTrimPeriod{4};
constexpr std::size_t kTrimSlice = 32u << 20;  // bytes freed before the devices get their turn

void not_kept(const Error& error) {
  log::warning("nbd.link_not_stored",
               {{"error", error.text}, {"effect", "if the agent dies, the kernel repeats the requests in flight"}});
}

std::optional<Arena> make_arena(device::FdStore& fd_store) {
  auto made = Arena::make();
  const auto held = made ? fd_store.hold_memory(made->token(), made->file()) : result<>(made.error());
  if (held) return std::move(*made);
  not_kept(held.error());
  return std::nullopt;
}
}  // namespace

/// Asio's memory for the posted wake-up: a thread of librbd has none to recycle and would call malloc for each.
template <class T>
struct IoLoop::WakeMemory {
  using value_type = T;
  explicit WakeMemory(IoLoop& owner) : loop(&owner) {}
  template <class Other>
  explicit WakeMemory(const WakeMemory<Other>& other) : loop(other.loop) {}
  T* allocate(std::size_t count) {
    static_assert(sizeof(T) <= sizeof(IoLoop::wake_memory_) && alignof(T) <= alignof(std::max_align_t));
    if (count != 1) throw std::bad_alloc();
    return reinterpret_cast<T*>(loop->wake_memory_);
  }
  void deallocate(T*, std::size_t) {}
  friend bool operator==(const WakeMemory&, const WakeMemory&) = default;
  IoLoop* loop;
};

struct IoLoop::Wake {
  using allocator_type = WakeMemory<std::byte>;
  allocator_type get_allocator() const { return allocator_type(*loop); }
  void operator()() const { loop->run_completions(); }
  IoLoop* loop;
};

IoLoop::IoLoop(std::uint64_t bytes_in_flight, std::uint32_t max_request_bytes, std::uint32_t reserved_bytes,
               std::size_t kept_buffers, device::FdStore* store)
    : arena_(store != nullptr ? make_arena(*store) : std::nullopt),
      fd_store(arena_ ? store : nullptr),
      buffers(kept_buffers, arena_ ? &*arena_ : nullptr),
      budget(bytes_in_flight, reserved_bytes),
      max_request_(max_request_bytes),
      work_(io_.get_executor()),
      thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "corbd-io");
}

Ledger IoLoop::make_ledger() const {
  if (fd_store != nullptr) {
    auto made = Ledger::make(true);
    if (made) return std::move(*made);
    not_kept(made.error());
  }
  auto made = Ledger::make(false);
  if (!made) throw std::bad_alloc();
  return std::move(*made);
}

IoLoop::~IoLoop() {
  asio::post(io_, [this] {
    ends_ = true;
    trims_.cancel();
  });
  work_.reset();
  thread_.join();
}

void IoLoop::give_back_buffer(std::byte* buffer, std::size_t bytes) {
  buffers.give_back(buffer, bytes);
  if (buffers.has_spare()) trim_later();
}

void IoLoop::trim_later() {
  if (ends_ || std::exchange(trims_soon_, true)) return;
  trims_.expires_after(kTrimPeriod);
  trims_.async_wait([this](boost::system::error_code ended) {
    trims_soon_ = false;
    if (ended) return;
    buffers.look_back();
    trim();
  });
}

void IoLoop::trim() {
  if (buffers.trim(kTrimSlice)) return asio::post(io_, [this] { trim(); });
  if (buffers.has_spare()) trim_later();
}

void IoLoop::complete(Completion& completion) {
  Completion* newest = completions_.load(std::memory_order_relaxed);
  do {
    completion.next_completion = newest;
  } while (
      !completions_.compare_exchange_weak(newest, &completion, std::memory_order_acq_rel, std::memory_order_relaxed));
  // The thread that finds the list empty wakes the loop. The memory of the last wake-up is free by then, because that
  // wake-up emptied the list.
  if (newest == nullptr) asio::post(io_.get_executor(), Wake{this});
}

void IoLoop::at_batch_end(Batched& what) {
  expect(here(), "a batch ends on its own io thread");
  if (what.asked_) return;
  what.asked_ = true;
  what.next_batched_ = std::exchange(batched_, &what);
}

void IoLoop::run() {
  this_thread_is = ThreadKind::io;
  for (;;)
    if (!(std::exchange(polls_, false) && poll()) && io_.run_one() == 0) return;
}

/// Returns whether it found something.
bool IoLoop::poll() {
  constexpr std::int64_t kPreempted_us = 100;
  const std::int64_t began = now_us();
  std::int64_t now = began, longest = 0;
  bool found = false;
  while (!found && now - began < Polling::kLongest_us) {
    found = io_.poll_one() > 0;
    const std::int64_t then = std::exchange(now, now_us());
    if (!found) longest = std::max(longest, now - then);
  }
  polling_.ended(found, longest > kPreempted_us);
  return found;
}

void IoLoop::run_completions() {
  Completion* newest = completions_.exchange(nullptr, std::memory_order_acq_rel);
  Completion* oldest = nullptr;
  batch_us_ = now_us();
  int operations = 0;
  for (; newest != nullptr; ++operations) {
    Completion* const next = std::exchange(newest->next_completion, oldest);
    oldest = std::exchange(newest, next);
  }
  while (oldest != nullptr) {
    Completion& one = *oldest;
    oldest = one.next_completion;
    one.completed(one);
  }
  while (batched_ != nullptr) {
    Batched& one = *batched_;
    batched_ = one.next_batched_;
    one.asked_ = false;
    one.batch_ended();
  }
  polls_ = polling_.pays(operations, took_us_);
}

}  // namespace corbd::nbd
