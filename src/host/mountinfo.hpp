#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/host/host.hpp"

namespace corbd::host {

/// Parses a file of the form of /proc/self/mountinfo. Looks at nothing that it names.
result<std::vector<Mount>> read_mountinfo(const std::string& file);

/// The mount whose root `fd` is (an O_PATH descriptor will do), if any. Does no I/O.
result<std::optional<Mount>> mount_at(int fd, const std::string& path);

}  // namespace corbd::host
