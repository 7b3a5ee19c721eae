// Steps for the filesystem: the content of the device, and its mounts.
#pragma once

#include "health_tracker.hpp"
#include "manual_checks.hpp"
#include "step_tools.hpp"

namespace corbd::volume {

class MountSteps : StepTools {
 public:
  MountSteps(StepTools tools, const HealthTracker& health, ManualChecks& checks)
      : StepTools(tools), health_(health), checks_(checks) {}
  task<result<>> look(Volume& volume, const step::Look& step);
  task<result<>> mkfs(Volume& volume);
  task<result<>> fsck(Volume& volume);
  task<result<>> mount(Volume& volume, std::string target, const Wish& wish);
  task<result<>> unmount(Volume& volume, std::string path, bool sync);
  task<result<>> freeze(Volume& volume, std::string target, const Wish& wish);
  task<result<>> thaw(Volume& volume, std::string target);
  task<result<>> trim(Volume& volume, const step::Trim& step);
  task<result<>> grow(Volume& volume, std::string target, const Wish& wish);
  task<result<>> limit_io(Volume& volume, const step::LimitIo& step);
  task<result<>> bind(Volume& volume, std::string target, const Wish& wish);

 private:
  task<result<>> trim_piece(Volume& volume, std::string target, std::uint64_t from);
  task<result<>> check_by_hand(Volume& volume, std::string device);
  static Error not_trimmed(const Volume& volume, Error error);
  std::string fstype_of(const Volume& volume) const;
  const HealthTracker& health_;
  ManualChecks& checks_;
};

}  // namespace corbd::volume
