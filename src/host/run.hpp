// Runs a tool and waits for it. Only helpers use this.
#pragma once

#include <string>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::host {

struct Ended {
  int code = -1;  ///< exit code; -1 when a signal ended it
  int signal = 0;
  std::string output;  ///< end of its output, at most 2 KiB, on one line
};

enum class Capture { errors, everything };

/// Looks for argv[0] in PATH and the sbin folders; not_found without it. stdin is empty; LC_ALL=C.
result<Ended> run(const std::vector<std::string>& argv, Capture capture);

/// Returns "exit code 1: text" or "killed by signal 9: text".
std::string describe(const Ended& ended);

}  // namespace corbd::host
