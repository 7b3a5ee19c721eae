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

/// Where the program is: in a folder of PATH, or in one where Debian has such programs. Empty: nowhere.
std::string find_program(const std::string& program);

}  // namespace corbd::host
