// `corbd handover`: starts the next agent beside the one that serves. For ExecReload= of systemd's unit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corbd::cli {

/// The arguments of the next agent: those of the one that serves, as /proc/<pid>/cmdline has them. Empty: that is no
/// agent.
std::vector<std::string> next_arguments(std::string_view cmdline);

}  // namespace corbd::cli
