// What happens to a volume: its health, its failures, the end of each wish. All that changes these, and tells of it, is
// here.
#pragma once

#include <string>
#include <vector>

#include "volume.hpp"

namespace corbd::volume {

class Changes {
 public:
  Changes(Clock& clock, const Ports& ports) : clock_(clock), ports_(ports) {}
  void tell(std::vector<Listener*> listeners) { listeners_ = std::move(listeners); }
  void notify(const std::string& volume_id, const Notice& notice) const;
  /// The volume may need healing.
  void report_failure(Volume& volume, const std::string& why) const;
  /// Looks whether the volume's health is another one now.
  void note_health(Volume& volume, const std::string& why) const;
  void note_outcome(Volume& volume, const Wish& wish, const result<>& outcome) const;

 private:
  void tell_who_uses_it(Volume& volume) const;
  void tell_read_only(const Volume& volume) const;
  Clock& clock_;
  const Ports& ports_;
  std::vector<Listener*> listeners_;
};

}  // namespace corbd::volume
