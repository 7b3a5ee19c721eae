// Implements the device port in the nbd room.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "corbd/core/helper_operation.hpp"
#include "corbd/device/device.hpp"
#include "corbd/device/fd_store.hpp"

namespace corbd::nbd {

/// Version of the state that a session leaves for the next agent. Raise it with every change of src/nbd/ledger.hpp, or
/// of its meaning.
inline constexpr std::uint32_t kLedgerVersion = 1;

/// A link that the predecessor handed over, or had when it died.
struct InheritedLink {
  std::string backend;  ///< identifier of its device
  Fd socket;
  Fd ledger = Fd();         ///< ledger of a dead agent's link
  std::uint64_t token = 0;  ///< token of that ledger
  time_point until = {};    ///< nobody resumes it later
};

struct Config {
  std::string sysfs = "/sys";                    ///< root of sysfs
  std::uint64_t bytes_in_flight = 512ull << 20;  ///< budget of all devices
  /// Each device is served by one io thread, which has an equal part of the budget.
  std::uint32_t io_threads = 1;
  /// Each device may have this much above the budget, or a single longer request. It is the largest request that the
  /// kernel makes (max_sectors_kb).
  std::uint32_t reserved_bytes = 1u << 20;
  std::uint32_t max_request_bytes = 32u << 20;  ///< a longer read or write is refused with EINVAL
  duration slow_request{};  ///< limit from which a request is slow: counted and logged; zero: none is slow
  /// Keyed by device index. If a device has several links, only one of them has not ended.
  std::vector<std::pair<std::uint32_t, InheritedLink>> inherited = {};
  device::FdStore* fd_store = nullptr;      ///< outlives the devices; nullptr: a link ends with this process
  std::map<std::uint64_t, Fd> memory = {};  ///< keyed by token: memory that the inherited ledgers refer to
  /// A file that every agent of the node locks while it gives a command, and a helper that gives one; "": there is no
  /// other agent.
  std::string commands_lock = {};
  HelperProgram helper = {};
  /// New devices offer WRITE_ZEROES. Set it only where no rbd-nbd will get one of their numbers (rule 21).
  bool write_zeroes = false;
};

/// Starts the io threads and the netlink thread; the destructor ends them, after all links are destroyed.
std::unique_ptr<device::Devices> make_devices(executor control, Clock& clock, Config config);

/// The operations of a helper for this room.
std::span<const helper::Known> helper_operations();

}  // namespace corbd::nbd
