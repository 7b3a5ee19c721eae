// Reads and writes the stash: ceph-csi's image-meta.json in the staging path.
#pragma once

#include <optional>
#include <string>

#include "corbd/cephcsi/stash.hpp"

namespace corbd::volume {

/// Writes durably. A crash leaves the old file or the new one. The folder must exist.
result<> write_stash(const std::string& staging_path, const cephcsi::Stash& stash);
/// `log`: rbd-nbd's log file to remove too, from cephcsi::log_to_remove(). Succeeds if there is no file or no folder.
result<> drop_stash(const std::string& staging_path, const std::string& log = "");
/// nullopt if there is no file. state_corrupt names the file.
result<std::optional<cephcsi::Stash>> read_stash(const std::string& staging_path);

}  // namespace corbd::volume
