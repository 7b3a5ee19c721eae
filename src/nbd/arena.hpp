// Address space for buffers, in memory that may outlive this process.
#pragma once

#include <cstddef>
#include <cstdint>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"

namespace corbd::nbd {

/// Makes an unnamed file in memory. Only pages that somebody wrote take memory.
result<Fd> make_memory_file(const char* name, std::size_t bytes);
/// Makes a number that is unique in this process and the next one. Never 0.
std::uint64_t make_token();

/// Never takes memory back, but frees its pages: Buffers reuses the addresses. Used on one thread.
class Arena {
 public:
  /// A budget of 512 MiB comes nowhere near it. After it, the next buffer is memory of this process alone.
  static constexpr std::size_t kBytes = 64ull << 30;
  static constexpr std::uint64_t kElsewhere = UINT64_MAX;

  static result<Arena> make(std::size_t bytes = kBytes);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  /// Returns nullptr if it is used up.
  std::byte* take(std::size_t bytes);
  bool has(const std::byte* place) const { return place >= base_ && place < base_ + bytes_; }
  /// Returns the place in the file; kElsewhere if it is no memory of the arena.
  std::uint64_t offset(const std::byte* place) const;
  std::uint64_t token() const { return token_; }
  int file() const { return file_.get(); }

 private:
  Arena(Fd file, std::byte* base, std::size_t bytes);
  Fd file_;
  std::byte* base_;
  std::size_t bytes_, used_ = 0;
  std::uint64_t token_;
};

}  // namespace corbd::nbd
