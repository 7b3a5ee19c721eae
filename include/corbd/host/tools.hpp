// The programs that helpers start for filesystems, from the table of filesystem types.
#pragma once

#include <string>
#include <vector>

namespace corbd::host {

struct Tool {
  std::string name;     ///< "mkfs.xfs"
  std::string package;  ///< name of Debian's package
};
/// Returns mkfs, fsck, and the tool that grows it, for every type that a volume may ask for. Each once.
std::vector<Tool> filesystem_tools();

/// Finds a program in a folder of PATH, or in one where Debian has such programs. Empty: it is missing.
std::string find_program(const std::string& program);

}  // namespace corbd::host
