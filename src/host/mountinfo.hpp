#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/host/host.hpp"

namespace corbd::host {

/// This process's own, read again when the kernel says that it changed (poll(2) on it, proc(5)), or when it is old: of
/// a filesystem that turned read-only after an error the kernel says nothing.
class MountReader {
 public:
  explicit MountReader(std::chrono::seconds lasts = std::chrono::seconds(10)) : lasts_(lasts) {}
  result<MountTable> read();

 private:
  const std::chrono::seconds lasts_;
  std::chrono::steady_clock::time_point read_at_;
  Fd file_;
  MountTable known_;  ///< null: not read, or not readable
};

/// Parses a file of the form of /proc/self/mountinfo. Looks at nothing that it names but at what `ext4`, its folder in
/// sysfs, tells of nbd devices.
result<std::vector<Mount>> read_mountinfo(const std::string& file, const std::string& ext4 = "/sys/fs/ext4");

/// The mount whose root `fd` is (an O_PATH descriptor will do), if any. Does no I/O.
result<std::optional<Mount>> mount_at(int fd, const std::string& path);

}  // namespace corbd::host
