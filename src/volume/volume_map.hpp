// The volumes of this node that have a record, or an operation under way.
#pragma once

#include <map>

#include "volume.hpp"

namespace corbd::volume {

class VolumeMap {
 public:
  VolumeMap(executor control, Clock& clock) : control_(std::move(control)), clock_(clock) {}
  /// Returns null if it is unknown.
  Volume* find(const std::string& id) const;
  /// Makes it if it is unknown, and forgets other volumes that are idle.
  Volume& find_or_create(const std::string& id);
  /// The last call of a coroutine for a volume. A volume with in_use_since stays: find_or_create() forgets it later.
  void forget_if_idle(const std::string& id);
  const RecordIndex& records() const { return records_; }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  executor control_;
  Clock& clock_;
  RecordIndex records_;
  std::map<std::string, std::unique_ptr<Volume>> all_;
  std::set<std::string> remembered_;  ///< idle ones that are kept for History::in_use_since
};

}  // namespace corbd::volume
