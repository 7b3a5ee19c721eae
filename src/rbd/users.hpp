// Finds the clients that have a pool's images open. Blocks: pool threads only.
#pragma once

#include <string>
#include <vector>

#include "connections.hpp"

namespace corbd::rbd {

/// Opens each image as a reader, which leaves no trace in it. An image that is gone by then is left out.
result<image::ImageUsers> list_users(Connection& connection, std::int64_t pool_id, const std::string& ns);

}  // namespace corbd::rbd
