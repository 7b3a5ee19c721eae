// Runs one request in a helper process of its own, for a thread that may block. The control thread uses a HelperPool.
#pragma once

#include <string>
#include <vector>

#include "corbd/core/helper_pool.hpp"

namespace corbd {

/// The program that a helper runs: by default this one, as `corbd helper`.
struct HelperProgram {
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments = {"helper"};
};

/// Returns when the helper has answered or died; a process that dies first leaves it running. After `report_after` the
/// log says that it is stuck.
result<boost::json::object> call_helper(const HelperRequest& request, const HelperProgram& program);

}  // namespace corbd
