// What sysfs shows of nbd devices. Attributes only: nothing here opens a device.
#pragma once

#include <string>
#include <vector>

#include "corbd/device/device.hpp"

namespace corbd::nbd {

/// The configured devices, by index. One that goes while it is read is left out.
result<std::vector<device::Seen>> read_inventory(const std::string& sysfs);
/// Whether the driver is loaded or built in.
bool driver_present(const std::string& sysfs);

}  // namespace corbd::nbd
