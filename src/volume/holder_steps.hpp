// Steps for an image that other clients have.
#pragma once

#include "health_tracker.hpp"
#include "step_tools.hpp"

namespace corbd::volume {

class HolderSteps : StepTools {
 public:
  HolderSteps(StepTools tools, const HealthTracker& health) : StepTools(tools), health_(health) {}
  task<result<>> look(Volume& volume);
  task<result<>> evict(Volume& volume, const step::Evict& step);

 private:
  const HealthTracker& health_;
};

}  // namespace corbd::volume
