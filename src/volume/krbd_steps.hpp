// The steps for a device of the kernel client.
#pragma once

#include "step_tools.hpp"

namespace corbd::volume {

class KrbdSteps : StepTools {
 public:
  using StepTools::StepTools;
  task<result<>> map(Volume& volume);
  task<result<>> unmap(Volume& volume);
};

}  // namespace corbd::volume
