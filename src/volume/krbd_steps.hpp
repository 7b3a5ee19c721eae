// The steps for a device of the kernel client.
#pragma once

#include "record_steps.hpp"

namespace corbd::volume {

class KrbdSteps : StepTools {
 public:
  KrbdSteps(StepTools tools, RecordSteps& records) : StepTools(tools), records_(records) {}
  task<result<>> map(Volume& volume);
  task<result<>> unmap(Volume& volume);

 private:
  task<result<std::string>> map_options(const Volume& volume);

  RecordSteps& records_;
};

}  // namespace corbd::volume
