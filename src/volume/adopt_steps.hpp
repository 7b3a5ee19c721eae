// The steps for a device that rbd-nbd made.
#pragma once

#include "health_tracker.hpp"
#include "step_tools.hpp"

namespace corbd::volume {

class AdoptSteps : StepTools {
 public:
  AdoptSteps(StepTools tools, const HealthTracker& health) : StepTools(tools), health_(health) {}
  task<result<>> look(Volume& volume);
  /// Reads who has the image while rbd-nbd serves the device. The process is the one that the last look found.
  task<result<>> look_beside(Volume& volume);
  task<result<>> dismiss(Volume& volume);
  task<result<>> inherit(Volume& volume, std::string address);

 private:
  void watch_silence(Volume& volume);
  task<> look_at_uncached(Volume& volume, std::uint32_t index, std::string process);
  task<result<image::Ownership>> read_beside(const Volume& volume, image::Access to, image::OpenOptions options,
                                             Until until);
  const HealthTracker& health_;
};

}  // namespace corbd::volume
