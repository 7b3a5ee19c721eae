// Counts the bytes that are stored for an image, by its object map. Pool thread, except where noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "image_handle.hpp"

namespace corbd::rbd {

/// Whether the image has a fast-diff map now, and the map is right.
bool fast_diff_is_valid(const ImageHandle& opened);

/// The extent of a count of an image.
struct CountSize {
  std::uint64_t bytes = 0, object_bytes = 1;
  std::uint64_t snapshots = 0;  ///< older releases of librbd read the map of each
};
/// Whether a count ends soon: its time and memory grow with the objects that the maps describe. Any thread.
bool counts_fast(const CountSize& size);

/// Implements image::Image::used_bytes(). unavailable once `stop` is set.
result<std::optional<std::uint64_t>> used_bytes(const ImageHandle& opened, const std::atomic<bool>& stop);

}  // namespace corbd::rbd
