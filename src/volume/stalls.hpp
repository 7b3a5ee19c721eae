// Watches for the end of each stall: from the loss of a device's server until the requests of that time are answered.
#pragma once

#include "corbd/core/gate.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class Stalls {
 public:
  Stalls(executor control, Clock& clock, const Ports& ports, VolumeMap& volumes, Gate& gate)
      : control_(std::move(control)), clock_(clock), ports_(ports), volumes_(volumes), gate_(gate) {}
  /// Watches a stall that has just begun until it ends, or until the gate closes.
  void note(Volume& volume);

 private:
  task<> watch(Volume& volume);
  bool is_all_sent(const Volume& volume) const;
  executor control_;
  Clock& clock_;
  const Ports& ports_;
  VolumeMap& volumes_;
  Gate& gate_;
};

}  // namespace corbd::volume
