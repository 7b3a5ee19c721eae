#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/mountinfo.hpp"

namespace corbd::host {

/// The mounts of a mountinfo, each with its line.
struct MountLines {
  struct Line {
    std::string text;
    std::uint64_t parent = 0;              ///< ID of the parent mount
    std::uint64_t shared = 0, master = 0;  ///< peer groups; 0: none
  };
  std::vector<Mount> mounts;
  std::vector<Line> lines;
};

/// Parses `text`, which is that of `file`. For a line that `before` has too, it keeps the earlier result. `ext4`: see
/// read_mountinfo(). unavailable: the text is not understood.
result<MountLines> parse_mounts(std::string_view text, const std::string& file, MountLines before,
                                const std::string& ext4 = "/sys/fs/ext4");

/// Reads this process's own mountinfo again when the kernel says that it changed (poll(2) on it, proc(5)), or when it
/// is old: the kernel does not report that a filesystem turned read-only after an error.
class MountReader {
 public:
  explicit MountReader(std::chrono::seconds lasts = std::chrono::seconds(10)) : lasts_(lasts) {}
  result<MountTable> read();

 private:
  const std::chrono::seconds lasts_;
  std::chrono::steady_clock::time_point parsed_all_at_;
  Fd file_;
  std::shared_ptr<MountLines> known_;  ///< null: not read, or not readable
};

/// Returns the mount whose root `fd` is (an O_PATH descriptor will do), if any, without its place. It needs no answer
/// of the filesystem.
result<std::optional<Mount>> mount_at(int fd, const std::string& path);

}  // namespace corbd::host
