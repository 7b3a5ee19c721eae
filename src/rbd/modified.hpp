// The modify timestamp of an image, which librbd sets when it writes, but no more often than once in
// rbd_mtime_update_interval (docs/sources.md#modify-timestamp). Pool threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "image_handle.hpp"

namespace corbd::rbd {

/// Traces of other clients in the header, beside the lock.
struct Traces {
  image::Features features;
  std::optional<std::uint64_t> modified;  ///< nanoseconds by an OSD's clock; nothing: not asked, or the header has none
};
/// Reads them in one operation. An old cluster knows no modify timestamp.
result<Traces> read_traces(const ImageHandle& opened, bool with_modified);
/// Sets the modify timestamp to the OSD's present time, and reads it.
result<std::optional<std::uint64_t>> stamp_modified(const ImageHandle& opened);
/// Decodes cls_rbd's utime_t: two little-endian numbers of four bytes, seconds and nanoseconds.
std::optional<std::uint64_t> decode_modified(std::string_view reply);

}  // namespace corbd::rbd
