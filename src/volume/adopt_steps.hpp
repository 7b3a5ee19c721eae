// The steps for a device that rbd-nbd made.
#pragma once

#include "changes.hpp"
#include "step_tools.hpp"

namespace corbd::volume {

class AdoptSteps : StepTools {
 public:
  AdoptSteps(StepTools tools, const Changes& changes) : StepTools(tools), changes_(changes) {}
  task<result<>> look(Volume& volume);
  task<result<>> dismiss(Volume& volume);
  task<result<>> inherit(Volume& volume, std::string address);

 private:
  void watch_silence(Volume& volume);
  task<> look_at_uncached(Volume& volume, std::uint32_t index, std::string process);
  const Changes& changes_;
};

}  // namespace corbd::volume
