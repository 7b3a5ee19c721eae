// The programs that helpers start for filesystems, from the table of filesystem types.
#pragma once

#include <string>
#include <vector>

namespace corbd::host {

struct Tool {
  std::string name;     ///< "mkfs.xfs"
  std::string package;  ///< Debian's
};
/// For every type that a volume may ask for: mkfs, fsck, and what grows it. Each once.
std::vector<Tool> filesystem_tools();

}  // namespace corbd::host
