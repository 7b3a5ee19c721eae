// Asks the cluster what the images of raw block volumes use: only when somebody wants to know, at most once a minute
// for each volume, and one at a time. Nobody waits for it.
#pragma once

#include "corbd/core/gate.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class UsedCounter {
 public:
  UsedCounter(executor control, Clock& clock, VolumeMap& volumes, Gate& gate)
      : clock_(clock),
        volumes_(volumes),
        gate_(gate),
        one_(std::move(control), clock, "a turn to count what an image uses", 1) {}

  /// Begins a count, if one is due and possible.
  void ask(Volume& volume);
  void ask_all();
  /// Gives up the count under way.
  void stop() { leaving_->cancel(); }
  void resume() { leaving_ = std::make_shared<CancelScope>(); }

 private:
  task<> count(Volume& volume);
  Clock& clock_;
  VolumeMap& volumes_;
  Gate& gate_;
  Slots one_;
  std::shared_ptr<CancelScope> leaving_ = std::make_shared<CancelScope>();
};

}  // namespace corbd::volume
