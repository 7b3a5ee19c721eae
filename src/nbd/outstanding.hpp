// Recovers the debts of a dead session from the memory of its ledger. Pure: bytes in, requests out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec.hpp"
#include "corbd/core/result.hpp"

namespace corbd::nbd {

struct Outstanding {
  /// A request that was read and whose reply is not completely sent.
  struct Slot {
    Request request;
    bool answered = false;      ///< its reply is known; otherwise it goes to the image, perhaps once more
    std::uint32_t error = 0;    ///< error of that reply
    std::uint32_t sent = 0;     ///< sent bytes of that reply. Only the first slot has any
    bool filling = false;       ///< a write whose payload is coming. Only the last slot is one
    std::uint32_t arrived = 0;  ///< bytes of that payload that are in place
    std::uint64_t buffer = 0;   ///< offset in the arena
    /// Returns how many bytes of its buffer matter.
    std::uint32_t data_bytes() const {
      if (filling) return arrived;
      if (request.command == Command::write) return answered ? 0 : request.length;
      return request.command == Command::read && answered && error == 0 ? request.length : 0;
    }
    std::size_t reply_size() const {
      return reply_bytes + (request.command == Command::read && error == 0 ? request.length : 0);
    }
  };
  std::vector<Slot> slots;       ///< in the order of reading, but one with a partly sent reply is first
  std::vector<std::byte> input;  ///< bytes that were read and not parsed
  std::uint32_t skip_left = 0;   ///< bytes of the stream that belong to a refused write
  std::uint64_t arena = 0;       ///< token of the arena with the buffers
};

/// Properties that the memory must have.
struct Expected {
  std::uint32_t device = 0;
  std::string backend;
  Limits limits;
  /// Token and size of each available arena.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> arenas;
};

/// failed_precondition names the inconsistency: then nobody may resume that stream.
result<Outstanding> recover_outstanding(std::span<const std::byte> memory, const Expected& expected);

}  // namespace corbd::nbd
