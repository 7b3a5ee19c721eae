// The volumes of this node that have a record, or that somebody works on.
#pragma once

#include <map>

#include "volume.hpp"

namespace corbd::volume {

class VolumeMap {
 public:
  VolumeMap(executor control, Clock& clock) : control_(std::move(control)), clock_(clock) {}
  /// Null if it is unknown.
  Volume* find(const std::string& id) const;
  /// Makes it if it is unknown.
  Volume& get(const std::string& id);
  /// The last thing that a coroutine does with a volume. A volume with in_use_since stays: get() forgets it later.
  void forget_if_idle(const std::string& id);
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  executor control_;
  Clock& clock_;
  std::map<std::string, std::unique_ptr<Volume>> all_;
};

}  // namespace corbd::volume
