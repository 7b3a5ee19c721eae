// Port to the keeper, which stores our descriptors for the next agent.
#pragma once

#include <cstdint>
#include <string>

#include "corbd/core/result.hpp"

namespace corbd::device {

/// Callable from any thread; never waits. The keeper reads messages in order, also those of a process that has died
/// since.
class FdStore {
 public:
  virtual ~FdStore() = default;

  struct Link {
    std::uint64_t token = 0;
    std::uint32_t device = 0;
    std::string backend;           ///< identifier of the link's device
    std::uint64_t instead_of = 0;  ///< token of the entry that is dropped in the same step; 0: none
  };
  /// Stores a link's socket and its ledger. After an error neither is stored, and the entry of `instead_of` stays.
  virtual result<> hold(const Link& link, int socket, int ledger) = 0;
  /// Stores memory that ledgers refer to, in the same way.
  virtual result<> hold_memory(std::uint64_t token, int file) = 0;
  /// Drops an entry that is no longer needed. An unknown token is no error.
  virtual result<> drop(std::uint64_t token) = 0;
};

}  // namespace corbd::device
