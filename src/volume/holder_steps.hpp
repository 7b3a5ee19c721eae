// The steps for an image that other clients have.
#pragma once

#include "changes.hpp"
#include "step_tools.hpp"

namespace corbd::volume {

class HolderSteps : StepTools {
 public:
  HolderSteps(StepTools tools, const Changes& changes) : StepTools(tools), changes_(changes) {}
  task<result<>> look(Volume& volume);
  task<result<>> evict(Volume& volume, const step::Evict& step);

 private:
  const Changes& changes_;
};

}  // namespace corbd::volume
