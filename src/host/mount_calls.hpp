// The kernel's table of mounts by listmount(2) and statmount(2): what changed costs, not what is there.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "corbd/host/mount_list.hpp"

namespace corbd::host {

/// A mount as the kernel describes it. `has_source`: Linux 6.14 and newer name a source, unless it is empty.
struct Described {
  MountList::Row row;
  bool has_source = false;
};

/// Returns the IDs of all mounts that mountinfo shows, in its order. The kernel gives no such ID twice. unimplemented:
/// the kernel, or a filter of system calls, does not know the call.
result<std::vector<std::uint64_t>> list_mounts();

/// Returns nothing if the mount is gone.
result<std::optional<Described>> describe_mount(std::uint64_t unique_id);

}  // namespace corbd::host
