#include "buffers.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

namespace corbd::nbd {

// No two buffers share a page: pages go back to the system whole. Kernels of arm64 may have pages of 16 or 64 KiB.
std::size_t Buffers::system_smallest() {
  static const std::size_t smallest = std::max(std::size_t{4096}, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  return smallest;
}

Buffers::~Buffers() {
  for (auto& list : free_)
    for (auto* buffers : {&list.kept, &list.bare})
      for (std::byte* buffer : *buffers)
        if (!in_arena(buffer)) std::free(buffer);
}

std::byte* Buffers::make(std::size_t size) {
  if (arena_ != nullptr)
    if (std::byte* const buffer = arena_->take(size)) return buffer;
  return static_cast<std::byte*>(std::aligned_alloc(smallest_, size));
}

std::size_t Buffers::rounded(std::size_t bytes, std::size_t smallest) {
  return std::bit_ceil(std::max(bytes, smallest));
}

std::size_t Buffers::class_of(std::size_t bytes) const {
  return static_cast<std::size_t>(std::countr_zero(rounded(bytes, smallest_)) - std::countr_zero(smallest_));
}

std::byte* Buffers::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes, smallest_);
  auto& list = free_.at(class_of(bytes));
  std::byte* buffer = nullptr;
  if (!list.kept.empty()) {
    buffer = list.kept.back();
    list.kept.pop_back();
    kept_ -= size;
  } else {
    // Buffers of other sizes are freed first, so that the total is no more than was in use at once.
    const std::size_t bound = std::max({peak_, last_peak_, keep_bytes_}), wanted = used_ + size;
    if (kept_ != 0 && kept_ + wanted > bound) let_go(bound > wanted ? bound - wanted : 0, SIZE_MAX);
    if (!list.bare.empty()) {
      buffer = list.bare.back();
      list.bare.pop_back();
    } else {
      buffer = make(size);
      if (buffer == nullptr) throw std::bad_alloc();
      ++made_;
    }
  }
  used_ += size;
  peak_ = std::max(peak_, used_);
  count();
  return buffer;
}

void Buffers::give_back(std::byte* buffer, std::size_t bytes) {
  const std::size_t size = rounded(bytes, smallest_);
  used_ -= size;
  kept_ += size;
  free_.at(class_of(bytes)).kept.push_back(buffer);
  count();
}

void Buffers::count() { resident_.store(used_ + kept_, std::memory_order_relaxed); }

void Buffers::look_back() {
  leave_ = std::max(keep_bytes_, peak_ - used_);
  last_peak_ = std::exchange(peak_, used_);
}

bool Buffers::trim(std::size_t at_most) { return let_go(leave_, at_most); }

bool Buffers::let_go(std::size_t leave, std::size_t at_most) {
  std::size_t size = smallest_ << (kClasses - 1), given = 0;
  for (auto list = free_.rbegin(); list != free_.rend() && kept_ > leave; ++list, size /= 2)
    while (!list->kept.empty() && kept_ > leave) {
      if (given >= at_most) return true;
      std::byte* buffer = list->kept.back();
      list->kept.pop_back();
      // Pages of a file stay with the file unless they are removed from it.
      ::madvise(buffer, size, in_arena(buffer) ? MADV_REMOVE : MADV_DONTNEED);
      list->bare.push_back(buffer);
      kept_ -= size;
      given += size;
      count();
    }
  return false;
}

}  // namespace corbd::nbd
