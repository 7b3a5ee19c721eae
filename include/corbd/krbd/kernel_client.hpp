// Drives the kernel's RBD client by its sysfs files (Documentation/ABI/testing/sysfs-bus-rbd), without rbd(8). A write
// to them waits for the cluster, so a helper process does it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "corbd/core/helper_operation.hpp"
#include "corbd/device/kernel_client.hpp"

namespace corbd::krbd {

/// `sysfs` is the root of sysfs.
std::unique_ptr<device::KernelClient> make_kernel_client(HelperPool& helpers, std::string sysfs = "/sys");

/// The operations of a helper for this room.
std::span<const helper::Known> helper_operations();

}  // namespace corbd::krbd
