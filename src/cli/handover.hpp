// `corbd handover`: starts the next agent beside the serving one. Used by ExecReload= of systemd's unit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corbd::cli {

/// Returns the arguments of the next agent: those of the serving one, from /proc/<pid>/cmdline. Empty: that process is
/// no agent.
std::vector<std::string> next_arguments(std::string_view cmdline);

}  // namespace corbd::cli
