#include "corbd/host/tools.hpp"

#include <algorithm>

#include "filesystem_types.hpp"

namespace corbd::host {

std::vector<Tool> filesystem_tools() {
  std::vector<Tool> all;
  for (const auto& name : offered_filesystems()) {
    const auto& type = *filesystem_type(name);
    for (const std::string& tool : {"mkfs." + name, "fsck." + name, type.grow({}, {}).front()})
      if (std::ranges::find(all, tool, &Tool::name) == all.end()) all.push_back({tool, std::string(type.package)});
  }
  return all;
}

}  // namespace corbd::host
