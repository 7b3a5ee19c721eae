// Finds out for mirrored images which copy may be written, and which clients are rbd-mirror's. Pool threads.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "image_handle.hpp"

namespace corbd::rbd {

/// Whether another cluster's copy is the primary one.
result<bool> is_secondary(const ImageHandle& opened);

/// Returns the clients ("client.4119") that report on this image's mirroring: rbd-mirror of this cluster and of its
/// peers. They watch the image without using it. Empty if the image is not mirrored.
result<std::set<std::string>> mirror_daemons(const ImageHandle& opened);

/// Returns the sender of such a report, as the OSD stores it (MirrorImageSiteStatusOnDisk of Ceph's
/// src/cls/rbd/cls_rbd_types.h). Nothing if the sender is no client.
std::optional<std::int64_t> reporter(std::string_view report);

}  // namespace corbd::rbd
