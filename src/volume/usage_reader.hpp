// Asks how full filesystems are, in one helper at a time, and remembers the answers.
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
        one_(control, clock, "a turn to ask how full a filesystem is", 1) {}

  /// Does Volumes::usage() for a volume that has a record and is at `path`.
  task<result<host::Usage>> read(Volume& volume, std::string path, Until until);
  /// Ends every wait.
  void stop() { leaving_.cancel(); }

 private:
  task<> ask(Volume& volume, std::string target);
  executor control_;
  Clock& clock_;
  const Ports& ports_;
  Gate& gate_;
  Slots one_;  ///< one at a time, to leave the helpers to healing
  CancelScope leaving_;
};

}  // namespace corbd::volume
