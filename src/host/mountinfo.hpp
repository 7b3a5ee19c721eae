#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/host/mount_list.hpp"
#include "corbd/host/mountinfo.hpp"

namespace corbd::host {

inline constexpr const char* kMountinfo = "/proc/self/mountinfo";
inline constexpr const char* kErrorCounts = "/sys/fs/ext4";  ///< a folder for each device

/// The mounts of a mountinfo, each with its line.
struct MountLines {
  struct Line {
    std::string text;
    std::uint64_t at = 0;  ///< its row in `list`
  };
  MountList list;
  std::vector<Line> lines;
};

/// Adds what the options of the filesystem, and its device, say of a mount: the device's number, and whether mount and
/// filesystem are read-only. `ext4`: see read_mountinfo().
void add_state(Mount& mount, const std::string& filesystem_options, const std::string& ext4);

/// Parses `text`, which is that of `file`. For a line that `before` has too, it keeps the earlier result. `ext4`: see
/// read_mountinfo(). unavailable: the text is not understood.
result<MountLines> parse_mounts(std::string_view text, const std::string& file, MountLines before,
                                const std::string& ext4 = kErrorCounts);

/// Returns the mount whose root `fd` is (an O_PATH descriptor will do), if any, without its place. It needs no answer
/// of the filesystem.
result<std::optional<Mount>> mount_at(int fd, const std::string& path);

}  // namespace corbd::host
