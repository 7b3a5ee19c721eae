// Watches whether the cluster has blocklisted the kernel clients of this node. Only the device's users get errors and
// nobody else is told, so the blocklist is read every two minutes.
#pragma once

#include <memory>

#include "corbd/core/gate.hpp"
#include "health_tracker.hpp"
#include "rounds.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class KernelWatch {
 public:
  KernelWatch(Clock& clock, const Ports& ports, VolumeMap& volumes, const HealthTracker& health, Gate& gate)
      : clock_(clock), ports_(ports), volumes_(volumes), health_(health), gate_(gate) {}
  /// Looks from time to time, until the gate closes.
  void start();
  /// Ends the look that is under way, and prevents others.
  void stop() { rounds_.stop(); }
  void resume() { rounds_.resume(); }

 private:
  task<> look(std::shared_ptr<CancelScope> leaving);
  void note(const image::Blocklist& listed);
  Clock& clock_;
  const Ports& ports_;
  VolumeMap& volumes_;
  const HealthTracker& health_;
  Gate& gate_;
  Rounds rounds_{clock_, gate_, [this](auto leaving) { return look(std::move(leaving)); }};
};

}  // namespace corbd::volume
