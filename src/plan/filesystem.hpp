// The part of the plan between a device that answers and a mounted filesystem: rule 10, a format only on proof of
// emptiness.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Whether the kernel takes the mount away with that at the path: it is the same one, seen by another path.
bool goes_with_mount_at(const Situation& view, const host::Mount& mount, const std::string& path);
/// The device, which is there, stays mounted somewhere once its mount at the target is gone.
std::optional<Decision> refuse_mounted(const Situation& view, const std::string& target);
/// What shows the volume's device there, if anything.
const host::Mount* our_mount_at(const Situation& view, const std::string& path);

/// The question of every step that writes on the image: whether nothing is to be written. By access mode, mapOptions or
/// mount flag of this staging, or because the device takes no write.
bool writes_nothing(const Situation& view, const Capability& capability);

/// The next step towards a filesystem as large as its device, through that mount of it; nothing when it is, or is
/// read-only.
std::optional<Decision> fill_device(const Situation& view, const host::Mount& mount, const Capability& capability);

/// Something is to be written on an image that shows nothing: `how`, once the image is proven empty and marked. What
/// this record began was, whatever it left; with the kernel's client only as long as nobody else had the image's lock.
Decision format(const Situation& view, const Step& how);
/// No format, and none to repeat: the record forgets what was begun, so that the refusal may be final.
Decision refuse_format(const Situation& view, errc code, std::string text);

/// `wanted`: the type of filesystem that the request names; empty: whatever is there.
Decision make_filesystem(const Situation& view, const std::string& target, const Capability& capability,
                         const std::string& wanted);

}  // namespace corbd::plan
