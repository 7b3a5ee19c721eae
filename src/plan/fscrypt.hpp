// The part of the plan for a volume whose files are encrypted: the folder on its mounted filesystem that its pods get.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Whether a folder of the image's filesystem is encrypted, and not the device below it.
bool encrypts_files(const image::Resolved& image);

/// The next step towards the open folder of the filesystem that is mounted there; nothing when it is, and for a volume
/// without one.
std::optional<Decision> open_folder(const Situation& view, const std::string& target, const Capability& capability);
/// Nothing is published out of a locked folder.
std::optional<Decision> refuse_locked(const Situation& view, const std::string& target);
/// The step after which the kernel has no key of the folder, before the last mount of its filesystem goes.
std::optional<Decision> lock_folder(const Situation& view, const std::string& target);

}  // namespace corbd::plan
