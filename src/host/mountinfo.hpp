#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/mountinfo.hpp"

namespace corbd::host {

/// This process's own mountinfo. It is read again when the kernel says that it changed (poll(2) on it, proc(5)), or
/// when it is old: the kernel does not report that a filesystem turned read-only after an error.
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

/// The mount whose root `fd` is (an O_PATH descriptor will do), if any. Does no I/O.
result<std::optional<Mount>> mount_at(int fd, const std::string& path);

}  // namespace corbd::host
