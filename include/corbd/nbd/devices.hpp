// The nbd room's real side of the device port.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "corbd/core/helper_operation.hpp"
#include "corbd/device/device.hpp"
#include "corbd/device/fd_store.hpp"

namespace corbd::nbd {

/// Of what a session leaves for the next agent. Raise it with every change of src/nbd/ledger.hpp, or of its meaning.
inline constexpr std::uint32_t kLedgerVersion = 1;

/// A link that the predecessor handed over, or had when it died.
struct InheritedLink {
  std::string backend;  ///< its device's identifier
  Fd socket;
  Fd ledger = Fd();         ///< of one that died: what it owed
  std::uint64_t token = 0;  ///< of that ledger
  time_point until = {};    ///< nobody goes on with it later
};

struct Config {
  std::string sysfs = "/sys";                    ///< root of sysfs
  std::uint64_t bytes_in_flight = 512ull << 20;  ///< budget of all devices
  /// Each device is served by one of them, which has an equal part of the budget.
  std::uint32_t io_threads = 1;
  /// Above the budget each device may have this much, or a single longer request. It is the largest request that the
  /// kernel makes (max_sectors_kb).
  std::uint32_t reserved_bytes = 1u << 20;
  std::uint32_t max_request_bytes = 32u << 20;  ///< a longer read or write is refused with EINVAL
  duration slow_request{};  ///< a request that takes longer is slow: it is counted and logged; zero: none is
  /// By their device's index; of several, only one has not ended.
  std::vector<std::pair<std::uint32_t, InheritedLink>> inherited = {};
  device::FdStore* fd_store = nullptr;      ///< outlives the devices; nullptr: a link ends with this process
  std::map<std::uint64_t, Fd> memory = {};  ///< by token: of what the given ledgers speak
  /// A file that every agent of the node locks while it gives a command, and a helper that gives one; "": there is no
  /// other agent.
  std::string commands_lock = {};
  HelperProgram helper = {};
};

/// Starts the io threads and the netlink thread; the destructor ends them, after all links are destroyed.
std::unique_ptr<device::Devices> make_devices(executor control, Clock& clock, Config config);

/// What the devices ask of a helper.
std::span<const helper::Known> helper_operations();

}  // namespace corbd::nbd
