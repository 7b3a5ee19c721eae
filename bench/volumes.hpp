// Which volumes a bench uses: a file of JSON.
#pragma once

#include <string>
#include <vector>

#include "corbd/manager/values.hpp"

namespace corbd::bench {

/// {"volumes": ["id", {"id": "id", "volume_context": {...}}, ...], "volume_context": {...}, "secrets": {...},
///  "block": false, "fstype": "ext4", "access_mode": "SINGLE_NODE_WRITER", "mount_options": [...]}
/// or, in place of the list, "volumes": {"pattern": "bench-{}", "count": 100}, numbered from 0. A volume's own context
/// is added to that of all. At most `count` of them; 0: all. Targets lie below `root`. Throws what is wrong.
std::vector<manager::Mount> read_volumes(const std::string& file, const std::string& root, std::size_t count);

/// Whether anything is mounted there or below. A driver may say that it is done and be wrong.
bool mounted(const std::string& path);
/// The folder and its empty parents below `root`. What a driver left in them stays.
void remove_folders(const std::string& path, const std::string& root);

}  // namespace corbd::bench
