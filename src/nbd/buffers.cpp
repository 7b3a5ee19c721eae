#include "buffers.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace corbd::nbd {
namespace {
constexpr std::size_t kSmallest = 4096;
}

Buffers::~Buffers() {
  for (auto& list : free_)
    for (std::byte* buffer : list) std::free(buffer);
}

std::size_t Buffers::rounded(std::size_t bytes) { return std::bit_ceil(std::max(bytes, kSmallest)); }

std::size_t Buffers::class_of(std::size_t bytes) {
  return static_cast<std::size_t>(std::countr_zero(rounded(bytes)) - std::countr_zero(kSmallest));
}

std::byte* Buffers::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  auto& list = free_.at(class_of(bytes));
  std::byte* buffer = nullptr;
  if (!list.empty()) {
    buffer = list.back();
    list.pop_back();
    kept_ -= size;
  } else {
    buffer = static_cast<std::byte*>(std::aligned_alloc(kSmallest, size));
    if (buffer == nullptr) throw std::bad_alloc();
    ++made_;
  }
  used_ += size;
  return buffer;
}

void Buffers::give(std::byte* buffer, std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  used_ -= size;
  kept_ += size;
  free_.at(class_of(bytes)).push_back(buffer);
  if (used_ == 0 && kept_ > keep_bytes_) trim();
}

void Buffers::trim() {
  std::size_t size = kSmallest << (kClasses - 1);
  for (auto list = free_.rbegin(); list != free_.rend() && kept_ > keep_bytes_; ++list, size /= 2)
    while (!list->empty() && kept_ > keep_bytes_) {
      std::free(list->back());
      list->pop_back();
      kept_ -= size;
    }
}

Budget::Budget(std::uint64_t bytes, std::uint64_t per_device) : free_(static_cast<std::int64_t>(bytes)), per_device_(per_device) {}

bool Budget::take(std::uint64_t bytes, std::uint64_t in_flight) {
  if (static_cast<std::int64_t>(bytes) > free_ && in_flight + bytes > per_device_) return false;
  free_ -= static_cast<std::int64_t>(bytes);
  return true;
}

void Budget::give(std::uint64_t bytes) {
  free_ += static_cast<std::int64_t>(bytes);
  std::int64_t left = free_;
  while (first_ != nullptr && static_cast<std::int64_t>(first_->wants_) <= left) {
    Waiter& woken = *first_;
    left -= static_cast<std::int64_t>(woken.wants_);
    first_ = woken.next_;
    woken.waits_ = false;
    woken.budget_freed();
  }
}

void Budget::wait(Waiter& waiter, std::uint64_t bytes) {
  if (waiter.waits_) return;
  waiter.waits_ = true;
  waiter.wants_ = bytes;
  waiter.next_ = nullptr;
  Waiter** last = &first_;
  while (*last != nullptr) last = &(*last)->next_;
  *last = &waiter;
}

void Budget::forget(Waiter& waiter) {
  if (!waiter.waits_) return;
  waiter.waits_ = false;
  Waiter** at = &first_;
  while (*at != &waiter) at = &(*at)->next_;
  *at = waiter.next_;
}

}  // namespace corbd::nbd
