// mount(8) options, parsed for the descriptor-based mount calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::host {

struct MountOption {
  std::string key;
  std::optional<std::string> value;
  friend bool operator==(const MountOption&, const MountOption&) = default;
};

struct MountFlags {
  std::uint64_t set = 0, clear = 0;     ///< MOUNT_ATTR_* of the mount
  std::vector<MountOption> filesystem;  ///< options of the superblock; "ro" is in both
  friend bool operator==(const MountFlags&, const MountFlags&) = default;
};

/// Parses a comma-separated list; commas between double quotes belong to the value (context="a:b:c1,c2").
/// invalid_argument: an option that makes the call another operation (bind, remount, move, propagation).
result<MountFlags> parse_flags(const std::string& flags);
/// Adds "nouuid" or "errors=remount-ro", unless an option of that name is set.
void add_default(MountFlags& flags, std::string_view option);

}  // namespace corbd::host
