// Finds out whether an image has any data, as the proof that mkfs and luksFormat need. Pool thread.
#pragma once

#include <atomic>

#include "image_handle.hpp"

namespace corbd::rbd {

/// The parents of a clone count. With a valid fast-diff map it is one read of the map, otherwise one operation per
/// object. unavailable once `stop` is set.
result<bool> has_data(const ImageHandle& opened, std::uint64_t size, const std::atomic<bool>& stop);

}  // namespace corbd::rbd
