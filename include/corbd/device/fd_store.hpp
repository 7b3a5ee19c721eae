// Port to a process that has descriptors of this one, for the one after it.
#pragma once

#include <cstdint>
#include <string>

#include "corbd/core/result.hpp"

namespace corbd::device {

/// Any thread; never waits. Messages are heard in order, also those of a process that has died since.
class FdStore {
 public:
  virtual ~FdStore() = default;

  struct Link {
    std::uint64_t token = 0;
    std::uint32_t device = 0;
    std::string backend;           ///< its device's identifier
    std::uint64_t instead_of = 0;  ///< the token of what goes at the same moment; 0: nothing does
  };
  /// Has a link's socket and its ledger from now on. An error: it does not, and what it should go instead of stays.
  virtual result<> hold(const Link& link, int socket, int ledger) = 0;
  /// Likewise for memory that ledgers speak of.
  virtual result<> hold_memory(std::uint64_t token, int file) = 0;
  /// Nobody needs it any more. One that it does not have is no error.
  virtual result<> drop(std::uint64_t token) = 0;
};

}  // namespace corbd::device
