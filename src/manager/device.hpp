// Whether a mount's device lives, by what sysfs says. Cannot hang.
#pragma once

#include <string>

#include "corbd/host/values.hpp"

namespace corbd::manager {

/// Why nothing can be read through the device any more; empty while there is no such reason. A device whose server is
/// away lives: its server comes back.
std::string death_of(const std::string& device, const std::string& sys = "/sys");
/// Why the mount serves nobody any more: death_of its device, or a filesystem that stopped writing after an error.
std::string death_of(const host::Mount& mount, const std::string& sys = "/sys");

}  // namespace corbd::manager
