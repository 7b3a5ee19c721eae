// The part of the plan between a device that answers and a mounted filesystem: rule 10, a format only on proof of
// emptiness.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Whether the kernel unmounts this mount with the one at the path, because it is the same mount seen by another path.
bool goes_with_mount_at(const Situation& view, const host::Mount& mount, const std::string& path);
/// Refuses if the existing device would stay mounted elsewhere once its mount at the target is gone.
std::optional<Decision> refuse_mounted(const Situation& view, const std::string& target);
/// Returns the mount there that shows the volume's device, if any.
const host::Mount* our_mount_at(const Situation& view, const std::string& path);

/// Whether nothing may be written, by access mode, mapOptions or mount flag of this staging, or because the device
/// takes no write. Every step that writes on the image asks this.
bool writes_nothing(const Situation& view, const Capability& capability);

/// Returns the next step towards a filesystem as large as its device, through that mount of it; nothing if it is, or is
/// read-only.
std::optional<Decision> fill_device(const Situation& view, const host::Mount& mount, const Capability& capability);

/// Writes on an image that shows nothing: `how`, once the image is proven empty and marked. A format that this record
/// began had that proof, whatever it left; with the kernel's client only as long as nobody else had the image's lock.
Decision format(const Situation& view, const Step& how);
/// Refuses to format. The record forgets any format that was begun, so that the refusal may be final.
Decision refuse_format(const Situation& view, errc code, std::string text);

/// `wanted`: the type of filesystem that the request names; empty: any that exists.
Decision make_filesystem(const Situation& view, const std::string& target, const Capability& capability,
                         const std::string& wanted);

}  // namespace corbd::plan
