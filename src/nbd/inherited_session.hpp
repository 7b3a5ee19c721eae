// What a session takes over from one of a dead process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/device/fd_store.hpp"
#include "outstanding.hpp"

namespace corbd::nbd {

/// The payloads of dead sessions: one file, for all that had it. Nobody needs it any more when the last of them has
/// taken over. It is read and never mapped: what a mapping cannot give kills whoever looks.
class OldArena {
 public:
  static result<std::shared_ptr<const OldArena>> open(device::FdStore& fd_store, std::uint64_t token, Fd file);
  ~OldArena();
  OldArena(const OldArena&) = delete;
  OldArena& operator=(const OldArena&) = delete;
  std::uint64_t token() const { return token_; }
  std::size_t size() const { return size_; }
  /// Any thread.
  result<> read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  OldArena(device::FdStore& fd_store, std::uint64_t token, Fd file);
  device::FdStore& fd_store_;
  std::uint64_t token_;
  Fd file_;
  std::size_t size_ = 0;
};

struct InheritedSession {
  device::FdStore* fd_store = nullptr;  ///< it has that ledger
  Outstanding owed;
  std::shared_ptr<const OldArena> arena;  ///< nothing if no payload is owed
  std::uint32_t device = 0;
  std::string backend;
  std::uint64_t token = 0;  ///< of the ledger that says so
  Fd ledger = Fd();
};

/// Nobody goes on with the link of that device.
void log_not_resumed(const std::string& backend, std::uint32_t device, const Error& why);

/// Reads what a dead session left, or says why nobody may go on with it.
result<Outstanding> read_ledger(int file, const Expected& expected);
/// Of a dead session whose link nobody goes on with. Whoever gets the file from now on refuses it.
void close_ledger(int file);
/// The token of the arena that a ledger speaks of; 0 if it is none.
std::uint64_t arena_of(int ledger);

}  // namespace corbd::nbd
