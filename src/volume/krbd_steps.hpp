// Steps for a device of the kernel client.
#pragma once

#include "step_tools.hpp"

namespace corbd::volume {

class KrbdSteps : StepTools {
 public:
  explicit KrbdSteps(StepTools tools) : StepTools(tools) {}
  task<result<>> map(Volume& volume);
  task<result<>> unmap(Volume& volume);

 private:
  task<result<std::string>> map_options(const Volume& volume);
};

}  // namespace corbd::volume
