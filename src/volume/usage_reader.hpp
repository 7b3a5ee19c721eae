// How full filesystems are: asked in a helper, one at a time, and remembered.
#pragma once

#include "corbd/core/gate.hpp"
#include "volume.hpp"

namespace corbd::volume {

class UsageReader {
 public:
  UsageReader(executor control, Clock& clock, const Ports& ports, Gate& gate)
      : control_(control),
        clock_(clock),
        ports_(ports),
        gate_(gate),
        one_(control, clock, "the question how full a filesystem is", 1) {}

  /// As Volumes::usage(). The volume has a record and is at `path`.
  task<result<host::Usage>> read(Volume& volume, std::string path, Until until);
  /// Ends every wait.
  void stop() { leaving_.cancel(); }

 private:
  task<> ask(Volume& volume, std::string target);
  executor control_;
  Clock& clock_;
  const Ports& ports_;
  Gate& gate_;
  Slots one_;  ///< helpers are for healing first
  CancelScope leaving_;
};

}  // namespace corbd::volume
