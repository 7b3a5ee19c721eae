// ceph-csi's image-meta.json of a staged volume, on its disk.
#pragma once

#include <optional>
#include <string>

#include "corbd/cephcsi/stash.hpp"

namespace corbd::volume {

/// Durable when it returns; a crash leaves the old or the new one. The folder must be there.
result<> write_stash(const std::string& staging_path, const cephcsi::Stash& stash);
/// With the log file of rbd-nbd that is to go, cephcsi::log_to_remove(). Fine when there is none, or no such folder.
result<> drop_stash(const std::string& staging_path, const std::string& log = "");
/// Nothing when there is none; state_corrupt names the file.
result<std::optional<cephcsi::Stash>> read_stash(const std::string& staging_path);

}  // namespace corbd::volume
