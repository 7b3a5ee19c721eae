// Memory for payloads. Shared by all devices of an io thread; used on that thread only.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "arena.hpp"

namespace corbd::nbd {

/// Keeps freed buffers by size class, so that a busy device asks nobody for memory. Pages of buffers that were not
/// needed for a while go back to the system. Their addresses stay, so that neither the number of mappings nor other
/// memory between them matters.
class Buffers {
 public:
  /// With an arena, which outlives this object, the buffers are the arena's memory. `smallest`: a power of two, and at
  /// least a page of the system.
  explicit Buffers(std::size_t keep_bytes, Arena* arena = nullptr, std::size_t smallest = system_smallest())
      : keep_bytes_(keep_bytes), smallest_(smallest), arena_(arena) {}
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  /// Returns the smallest buffer of this system: a page, at least 4 KiB.
  static std::size_t system_smallest();
  /// Returns the bytes that such a buffer really takes: a power of two.
  static std::size_t rounded(std::size_t bytes, std::size_t smallest = system_smallest());
  /// Returns memory aligned to the smallest buffer.
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* buffer, std::size_t bytes);
  /// Whether it keeps more than its permanent reserve.
  bool has_spare() const { return kept_ > keep_bytes_; }
  /// Ends a period. trim() leaves as much as was in use at once since the last call, or `keep_bytes`.
  void look_back();
  /// Gives back about that many bytes at most. Returns true if there is more.
  bool trim(std::size_t at_most);
  /// Returns how often the system was asked for memory.
  std::uint64_t made() const { return made_; }
  /// Returns the bytes in use and kept. Any thread.
  std::size_t resident() const { return resident_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kClasses = 20;  // sizes from 4 KiB to 2 GiB, or from a larger page on
  std::size_t class_of(std::size_t bytes) const;
  /// Frees kept buffers, the largest first, until `leave` bytes remain or about `at_most` bytes are given back. Returns
  /// true if there is more.
  bool let_go(std::size_t leave, std::size_t at_most);
  void count();
  std::byte* make(std::size_t size);
  bool in_arena(const std::byte* buffer) const { return arena_ != nullptr && arena_->has(buffer); }
  struct Free {
    std::vector<std::byte*> kept;
    std::vector<std::byte*> bare;  ///< without pages
  };

  std::size_t keep_bytes_, smallest_;
  Arena* const arena_;
  std::size_t kept_ = 0, used_ = 0;       ///< bytes
  std::size_t peak_ = 0, last_peak_ = 0;  ///< maximum of used_ in this period, and in the one before
  std::size_t leave_ = SIZE_MAX;          ///< part of kept_ that trim() leaves
  std::uint64_t made_ = 0;
  std::atomic<std::size_t> resident_{0};
  std::array<Free, kClasses> free_;
};

}  // namespace corbd::nbd
