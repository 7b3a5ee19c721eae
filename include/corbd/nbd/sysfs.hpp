// Reads the state of nbd devices from sysfs. It reads only attributes; nothing here opens a device.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "corbd/device/device.hpp"

namespace corbd::nbd {

/// Returns the configured devices, by index. Leaves out a device that disappears during the read.
result<std::vector<device::Seen>> read_inventory(const std::string& sysfs);
/// Returns the identifiers of the configured devices, by index. It reads only one attribute of each.
result<std::vector<std::pair<std::uint32_t, std::string>>> read_backends(const std::string& sysfs);
/// Returns a device, if it is configured.
std::optional<device::Seen> read_one(const std::string& sysfs, std::uint32_t index);
/// Returns the identifier of a device, if it is configured and has one.
std::optional<std::string> read_backend(const std::string& sysfs, std::uint32_t index);
/// Returns the ID of the process that connected it; "" if it is not configured.
std::string read_pid(const std::string& sysfs, std::uint32_t index);
/// A number for a new device, and whether an unconfigured device has that number: one that was disconnected, or one on
/// its way out.
struct Number {
  std::uint32_t index = 0;
  bool exists = false;
  bool operator==(const Number&) const = default;
};
/// Returns the lowest numbers that are not configured and not in `avoid`.
result<std::vector<Number>> free_numbers(const std::string& sysfs, const std::vector<std::uint32_t>& avoid,
                                         std::size_t count);
/// Returns the numbers of unconfigured devices that refuse writes: an earlier user left them so.
std::vector<std::uint32_t> read_only_numbers(const std::string& sysfs);
/// Returns the numbers, configured or not, whose device sends WRITE_ZEROES. Whoever gets such a number must answer it.
std::vector<std::uint32_t> zeroing_numbers(const std::string& sysfs);
/// Whether the driver is loaded or built in.
bool driver_present(const std::string& sysfs);

}  // namespace corbd::nbd
