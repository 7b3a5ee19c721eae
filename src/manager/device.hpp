// Finds out from sysfs whether a mount's device lives. Cannot hang.
#pragma once

#include <string>

#include "corbd/host/values.hpp"

namespace corbd::manager {

/// Returns why nothing can be read through the device any more; empty if there is no such reason. A device whose server
/// is away lives: its server comes back.
std::string death_of(const std::string& device, const std::string& sys = "/sys");
/// Returns why the mount serves nobody any more: death_of its device, or a filesystem that stopped writing after an
/// error.
std::string death_of(const host::Mount& mount, const std::string& sys = "/sys");

}  // namespace corbd::manager
