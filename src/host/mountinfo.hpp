#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/host/host.hpp"

namespace corbd::host {

/// This process's own, read again only when the kernel says that it changed (poll(2) on it, proc(5)).
class MountTable {
 public:
  result<std::vector<Mount>> read();

 private:
  Fd file_;
  std::optional<std::vector<Mount>> known_;
};

/// Parses a file of the form of /proc/self/mountinfo. Looks at nothing that it names.
result<std::vector<Mount>> read_mountinfo(const std::string& file);

/// The mount whose root `fd` is (an O_PATH descriptor will do), if any. Does no I/O.
result<std::optional<Mount>> mount_at(int fd, const std::string& path);

}  // namespace corbd::host
