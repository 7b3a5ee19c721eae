// The part of the plan for a volume whose files are encrypted: the folder on its mounted filesystem that its pods get.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Whether a folder of the image's filesystem is encrypted, and not the device below it.
bool encrypts_files(const image::Resolved& image);

/// Returns the next step towards the open folder of the filesystem that is mounted there; nothing if it is open, and
/// for a volume without one.
std::optional<Decision> open_folder(const Situation& view, const std::string& target, const Capability& capability);
/// Refuses to publish out of a locked folder.
std::optional<Decision> refuse_locked(const Situation& view, const std::string& target);
/// Returns the step that removes the folder's key from the kernel, before the last mount of its filesystem goes.
std::optional<Decision> lock_folder(const Situation& view, const std::string& target);

}  // namespace corbd::plan
