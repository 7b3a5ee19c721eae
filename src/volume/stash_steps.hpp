// Steps that inform ceph-csi about a volume: through the stash, and through the image's metadata.
#pragma once

#include "step_tools.hpp"

namespace corbd::volume {

class StashSteps : StepTools {
 public:
  using StepTools::StepTools;
  task<result<>> look(Volume& volume, const Wish& wish);
  task<result<>> write(Volume& volume, const step::WriteStash& step);
  task<result<>> drop(Volume& volume, std::string staging_path);
  task<result<>> note(Volume& volume, const Note& wanted, const Wish& wish);

 private:
  task<result<>> write_note(Volume& volume, const Note& wanted);
};

}  // namespace corbd::volume
