// The cgroups that this process is in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace corbd::host {

/// Returns the folders of the cgroups (version 2) that the process is in, the innermost first, the root last. Empty:
/// there is no such hierarchy. `cgroups`: where it is mounted; `own`: the process' /proc/self/cgroup.
std::vector<std::string> own_cgroups(const std::string& cgroups, const std::string& own);

/// Returns the number that such a file as memory.max begins with. Nothing: it has none ("max"), or cannot be read.
std::optional<std::uint64_t> kernel_number(const std::string& file);

}  // namespace corbd::host
