// What a dead session left, from the memory of its ledger. Pure: bytes in, what is owed out.
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
  /// A request that was read and whose reply is not out, or not whole.
  struct Slot {
    Request request;
    bool answered = false;      ///< its reply is known; otherwise it goes to the image, perhaps once more
    std::uint32_t error = 0;    ///< of that reply
    std::uint32_t sent = 0;     ///< bytes of that reply that are out. Only the first slot has any
    bool filling = false;       ///< a write whose payload is coming. Only the last slot is
    std::uint32_t arrived = 0;  ///< bytes of that payload that are in its place
    std::uint64_t buffer = 0;   ///< offset in the arena
    /// Bytes of its buffer that matter.
    std::uint32_t data_bytes() const {
      if (filling) return arrived;
      if (request.command == Command::write) return answered ? 0 : request.length;
      return request.command == Command::read && answered && error == 0 ? request.length : 0;
    }
    std::size_t reply_size() const {
      return reply_bytes + (request.command == Command::read && error == 0 ? request.length : 0);
    }
  };
  std::vector<Slot> slots;       ///< as they were read, but for one whose reply is out in part: that is the first
  std::vector<std::byte> input;  ///< read, but not taken apart
  std::uint32_t skip_left = 0;   ///< bytes of the stream that belong to a refused write
  std::uint64_t arena = 0;       ///< token of the arena with the buffers
};

/// What the memory must be about.
struct Expected {
  std::uint32_t device = 0;
  std::string backend;
  Limits limits;
  /// Token and size of each arena that is at hand.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> arenas;
};

/// failed_precondition, with what does not add up: then nobody may go on with that stream.
result<Outstanding> recover_outstanding(std::span<const std::byte> memory, const Expected& expected);

}  // namespace corbd::nbd
