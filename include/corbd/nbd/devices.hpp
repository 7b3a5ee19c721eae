// The nbd room's real side of the device port.
#pragma once

#include <memory>

#include "corbd/device/device.hpp"

namespace corbd::nbd {

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
};

/// Starts the io threads and the netlink thread; the destructor ends them, after all links are destroyed.
std::unique_ptr<device::Devices> make_devices(executor control, Clock& clock, Config config);

}  // namespace corbd::nbd
