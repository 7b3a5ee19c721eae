// Drives the kernel's RBD client by its sysfs files (Documentation/ABI/testing/sysfs-bus-rbd), without rbd(8). A write
// to them waits for the cluster, so a helper process does it.
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <string>

#include "corbd/core/helper_pool.hpp"
#include "corbd/device/kernel_client.hpp"

namespace corbd::krbd {

/// `sysfs` is the root of sysfs.
std::unique_ptr<device::KernelClient> make_kernel_client(HelperPool& helpers, std::string sysfs = "/sys");

/// In the helper process: whether the request is one of the client's above, and what is to be done.
bool knows(const boost::json::object& request);
result<boost::json::object> work(const boost::json::object& request);

}  // namespace corbd::krbd
