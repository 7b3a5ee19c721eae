// What sysfs shows of nbd devices. Attributes only: nothing here opens a device.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "corbd/device/device.hpp"

namespace corbd::nbd {

/// The configured devices, by index. One that goes while it is read is left out.
result<std::vector<device::Seen>> read_inventory(const std::string& sysfs);
/// The identifiers of the configured devices by index: one attribute of each, not all of them.
result<std::vector<std::pair<std::uint32_t, std::string>>> read_backends(const std::string& sysfs);
/// One device, if it is configured.
std::optional<device::Seen> read_one(const std::string& sysfs, std::uint32_t index);
/// The identifier of a device, if it is configured and has one.
std::optional<std::string> read_backend(const std::string& sysfs, std::uint32_t index);
/// Of the process that connected it; "" when it is not configured.
std::string read_pid(const std::string& sysfs, std::uint32_t index);
/// A number for a new device, and whether there is an unconfigured device of it: one that was disconnected, or one on
/// its way out.
struct Number {
  std::uint32_t index = 0;
  bool exists = false;
  bool operator==(const Number&) const = default;
};
/// The lowest that are not configured, none of `avoid`.
result<std::vector<Number>> free_numbers(const std::string& sysfs, const std::vector<std::uint32_t>& avoid,
                                         std::size_t count);
/// Whether the driver is loaded or built in.
bool driver_present(const std::string& sysfs);

}  // namespace corbd::nbd
