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
/// For a new device, none of `avoid`; absent: whichever the kernel takes, for each of `avoid` has its device.
result<std::optional<std::uint32_t>> number_to_ask_for(const std::string& sysfs, const std::vector<std::uint32_t>& avoid);
/// Whether the driver is loaded or built in.
bool driver_present(const std::string& sysfs);

}  // namespace corbd::nbd
