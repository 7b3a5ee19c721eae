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

/// Returns why the kernel may swap this process out: the node has swap, and none of the process' cgroups (version 2)
/// forbids it. Empty: it may not. `root`: where /proc and /sys are; empty in use.
std::string may_be_swapped(const std::string& root);

/// Returns the number that such a file as memory.max begins with. Nothing: it has none ("max"), or cannot be read.
std::optional<std::uint64_t> kernel_number(const std::string& file);

}  // namespace corbd::host
