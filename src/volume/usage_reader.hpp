// Asks how full filesystems are, in one helper at a time, and remembers the answers.
#pragma once

#include "corbd/core/gate.hpp"
#include "used_counter.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class UsageReader {
 public:
  UsageReader(executor control, Clock& clock, const Ports& ports, VolumeMap& volumes, Gate& gate)
      : control_(control),
        clock_(clock),
        ports_(ports),
        volumes_(volumes),
        gate_(gate),
        one_(control, clock, "a turn to ask how full a filesystem is", 1),
        used_(control, clock, volumes, gate) {}

  /// Implements Volumes::usage().
  task<result<host::Usage>> read(std::string id, std::string path, Until until);
  /// Implements Volumes::count_used().
  void count_used() { used_.ask_all(); }
  /// Ends every wait.
  void stop() {
    leaving_->cancel();
    used_.stop();
  }
  /// Waits again.
  void resume() {
    leaving_ = std::make_shared<CancelScope>();
    used_.resume();
  }

 private:
  bool shows_at(const Volume& volume, const std::string& path) const;
  task<result<host::Usage>> read_one(Volume& volume, std::string path, Until until);
  task<> ask(Volume& volume, std::string target);
  executor control_;
  Clock& clock_;
  const Ports& ports_;
  VolumeMap& volumes_;
  Gate& gate_;
  Slots one_;  ///< one at a time, to leave the helpers to healing
  UsedCounter used_;
  std::shared_ptr<CancelScope> leaving_ = std::make_shared<CancelScope>();
};

}  // namespace corbd::volume
