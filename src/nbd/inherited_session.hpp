// State that a session takes over from a session of a dead process.
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

/// The payloads of dead sessions: one file, shared by all of them. It can go when the last of them has been taken over.
/// It is read and never mapped: a page that a mapping cannot provide kills the reader.
class OldArena {
 public:
  static result<std::shared_ptr<const OldArena>> open(device::FdStore& fd_store, std::uint64_t token, Fd file);
  ~OldArena();
  OldArena(const OldArena&) = delete;
  OldArena& operator=(const OldArena&) = delete;
  std::uint64_t token() const { return token_; }
  std::size_t size() const { return size_; }
  /// Callable from any thread.
  result<> read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  OldArena(device::FdStore& fd_store, std::uint64_t token, Fd file);
  device::FdStore& fd_store_;
  std::uint64_t token_;
  Fd file_;
  std::size_t size_ = 0;
};

struct InheritedSession {
  device::FdStore* fd_store = nullptr;  ///< stores that ledger
  Outstanding owed;
  std::shared_ptr<const OldArena> arena;  ///< nothing if no payload is owed
  std::uint32_t device = 0;
  std::string backend;
  std::uint64_t token = 0;  ///< token of the ledger that was read
  Fd ledger = Fd();
};

/// Logs why nobody resumes the link of that device.
void log_not_resumed(const std::string& backend, std::uint32_t device, const Error& why);

/// Reads the state that a dead session left, or returns why nobody may resume it.
result<Outstanding> read_ledger(int file, const Expected& expected);
/// Closes the ledger of a dead session whose link nobody resumes. Every later reader of the file refuses it.
void close_ledger(int file);
/// Returns the token of the arena that a ledger refers to; 0 if it is no ledger.
std::uint64_t arena_of(int ledger);

}  // namespace corbd::nbd
