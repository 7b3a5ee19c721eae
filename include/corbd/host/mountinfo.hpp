// Reads files in the format of /proc/self/mountinfo. Reading one cannot hang.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/host/values.hpp"

namespace corbd::host {

/// Returns all mounts. Besides the file it reads only `ext4`, the filesystem's folder in sysfs, for nbd devices.
result<std::vector<Mount>> read_mountinfo(const std::string& file, const std::string& ext4 = "/sys/fs/ext4");

/// Whether mounts below `path` reach other namespaces: the mount that holds it is in a shared peer group. Absent: no
/// mount of the file holds it.
std::optional<bool> propagates(const std::string& file, const std::string& path);

/// Returns the kernel's name of the block device under the mount, "nbd0"; empty if it has none.
std::string device_of(const Mount& mount, const std::string& sys = "/sys");

}  // namespace corbd::host
