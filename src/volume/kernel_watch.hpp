// Watches whether the cluster has blocklisted the kernel clients of this node. Only the device's users get errors and
// nobody else is told, so the blocklist is read every two minutes.
#pragma once

#include <memory>

#include "corbd/core/gate.hpp"
#include "health_tracker.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class KernelWatch {
 public:
  KernelWatch(Clock& clock, const Ports& ports, VolumeMap& volumes, const HealthTracker& health, Gate& gate)
      : clock_(clock), ports_(ports), volumes_(volumes), health_(health), gate_(gate) {}
  ~KernelWatch() { clock_.cancel(timer_); }
  /// Looks from time to time, until the gate closes.
  void start();
  /// Ends the look that is under way, and prevents others.
  void stop() { leaving_->cancel(); }
  void resume() { leaving_ = std::make_shared<CancelScope>(); }

 private:
  task<> look();
  void note(const image::Blocklist& listed);
  Clock& clock_;
  const Ports& ports_;
  VolumeMap& volumes_;
  const HealthTracker& health_;
  Gate& gate_;
  Clock::TimerId timer_ = 0;
  std::shared_ptr<CancelScope> leaving_ = std::make_shared<CancelScope>();
};

}  // namespace corbd::volume
