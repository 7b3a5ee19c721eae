// The only writer of a volume's health. It logs each change and the end of each wish, and tells the listeners.
#pragma once

#include <string>
#include <vector>

#include "volume.hpp"

namespace corbd::volume {

class HealthTracker {
 public:
  HealthTracker(Clock& clock, const Ports& ports) : clock_(clock), ports_(ports) {}
  void set_listeners(std::vector<Listener*> listeners) { listeners_ = std::move(listeners); }
  void notify(const std::string& volume_id, const Notice& notice) const;
  /// Reports that the volume may need healing. If it has no server, calls that wait for its device return.
  void report_failure(Volume& volume, const std::string& why) const;
  /// Computes the health anew. If it changed, logs that and tells the listeners.
  void note_health(Volume& volume, const std::string& why) const;
  void note_outcome(Volume& volume, const Wish& wish, const result<>& outcome) const;

 private:
  void tell_who_uses_it(Volume& volume) const;
  void tell_read_only(const Volume& volume) const;
  void tell_of_damage(const Volume& volume, const Wish& wish, const result<>& outcome) const;
  void tell_of_next_stage(Volume& volume, const Staged& wish) const;
  Clock& clock_;
  const Ports& ports_;
  std::vector<Listener*> listeners_;
};

}  // namespace corbd::volume
