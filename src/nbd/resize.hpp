// A resize, which a helper gives to the kernel. Newer kernels wait in it for the requests in flight, and no signal ends
// that wait. A process that has the sockets would keep them until somebody answers, and nobody else could.
#pragma once

#include <cstdint>
#include <string>

#include "corbd/core/helper_pool.hpp"

namespace corbd::nbd {

struct Resize {
  std::uint32_t index = 0;
  std::string backend;
  std::uint64_t bytes = 0;
  std::string sysfs;
};
HelperRequest resize_request(const Resize& wanted, const std::string& commands_lock);

}  // namespace corbd::nbd
