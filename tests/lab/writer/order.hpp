// Decides whether reads and writes of single blocks can have happened one after another.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace corbd::writer {

/// One read or write of a whole block.
struct Operation {
  /// It was still under way at the end, or failed: a write may have happened, or may still happen.
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
  /// Value of a block that nobody has written.
  static constexpr std::uint64_t kInitial = 0;
  /// Value of a block whose bytes no single write has made.
  static constexpr std::uint64_t kDamaged = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t block = 0;
  bool writes = false;
  std::uint64_t value = 0;        ///< each write of a block has another; a read has that of the write it saw
  std::int64_t began = 0;         ///< ns
  std::int64_t ended = kUnknown;  ///< ns
};

/// Returns a sentence for each thing that no order explains; nothing: the history of each block can have happened in
/// one order. A read happens at one moment between its begin and its end. A write may happen more than once in that
/// time, because the kernel sends a request whose answer was lost again; once it has its answer it never happens again.
///
/// Each write has its own value, so this needs no search (after Gibbons and Korach, "Testing shared memories", 1997).
/// If a read that began after a write's answer saw its value, then the block held that from the answer until the read:
/// no two such spans overlap. Every other read and write needs one moment that is not inside another value's span.
std::vector<std::string> violations(const std::vector<Operation>& history);

}  // namespace corbd::writer
