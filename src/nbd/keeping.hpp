// What a session takes over from one of a dead process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/device/keep.hpp"
#include "settle.hpp"

namespace corbd::nbd {

/// The payloads of dead sessions: one file, for all that had it. Nobody needs it any more when the last of them has
/// taken over.
class OldArena {
 public:
  static result<std::shared_ptr<const OldArena>> open(device::Keep& keep, std::uint64_t token, Fd file);
  ~OldArena();
  OldArena(const OldArena&) = delete;
  OldArena& operator=(const OldArena&) = delete;
  std::uint64_t token() const { return token_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  OldArena(device::Keep& keep, std::uint64_t token, std::span<const std::byte> bytes)
      : keep_(keep), token_(token), bytes_(bytes) {}
  device::Keep& keep_;
  std::uint64_t token_;
  std::span<const std::byte> bytes_;
};

struct Left {
  device::Keep* keep = nullptr;  ///< it has that ledger
  Settled owed;
  std::shared_ptr<const OldArena> arena;  ///< nothing if no payload is owed
  std::uint32_t device = 0;
  std::string backend;
  std::uint64_t token = 0;  ///< of the ledger that says so
};

/// Reads what a dead session left, or says why nobody may go on with it.
result<Settled> read_ledger(int file, const Expected& expected);

}  // namespace corbd::nbd
