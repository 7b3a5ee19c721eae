// Mount points: made, opened without following a link, removed when empty.
#pragma once

#include <optional>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/core/held_path.hpp"
#include "corbd/core/result.hpp"

namespace corbd::host {

/// Makes the folder (0750) or file (0600) if nothing is there and opens what is there with O_PATH|O_NOFOLLOW.
/// failed_precondition when it is of the other type.
result<Fd> make_target(const std::string& path, bool file);

/// Opens with O_PATH|O_NOFOLLOW; nothing if it does not exist. A symbolic link is an error.
result<std::optional<Fd>> open_target(const HeldPath& place);

/// Opens the root of the mounted filesystem with O_PATH: below an unmounted target lies the node's own filesystem.
/// not_found if nothing is mounted.
result<Fd> open_mounted(const std::string& path);
/// Does the same for reading.
result<Fd> open_mounted_folder(const std::string& path);

/// failed_precondition when a folder that is to be mounted over holds anything.
result<> check_empty(int target, const std::string& path);

/// Moves the detached mount there.
result<> attach(int mount, int target, const std::string& path);

/// Removes an empty folder or a file of no bytes, and never anything else.
result<> remove_target(const HeldPath& place);

}  // namespace corbd::host
