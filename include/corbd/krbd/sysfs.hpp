// Reads the state of the kernel's rbd client from sysfs.
#pragma once

#include <string>
#include <vector>

#include "corbd/device/kernel_client.hpp"

namespace corbd::krbd {

/// `sysfs` is the root of sysfs. Empty without the module.
result<std::vector<device::Mapped>> read_inventory(const std::string& sysfs);
/// Whether the client of that kernel (uname -r) knows keys of type aes256k.
bool knows_aes256k(std::string_view release);
/// failed_precondition without the module. `release`: uname -r, because sysfs does not show which keys the client
/// knows.
result<device::Abilities> read_abilities(const std::string& sysfs, std::string_view release);

}  // namespace corbd::krbd
