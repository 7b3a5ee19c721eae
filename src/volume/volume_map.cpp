#include "volume_map.hpp"

namespace corbd::volume {
namespace {

// Time for which the agent remembers since when a volume is refused as in use, after its last caller.
constexpr std::chrono::hours kRememberRefusal{24};

}  // namespace

Volume* VolumeMap::find(const std::string& id) const {
  const auto known = all_.find(id);
  return known == all_.end() ? nullptr : known->second.get();
}

Volume& VolumeMap::find_or_create(const std::string& id) {
  if (Volume* known = find(id)) return *known;
  std::erase_if(remembered_, [&](const std::string& other) {
    const Volume* const known = find(other);
    if (known == nullptr || !known->idle()) return true;
    const auto& refused = known->history.in_use_since;
    const bool over = !refused || clock_.now() - *refused > kRememberRefusal;
    if (over) all_.erase(other);
    return over;
  });
  return *all_.emplace(id, std::make_unique<Volume>(id, control_, clock_, records_)).first->second;
}

void VolumeMap::forget_if_idle(const std::string& id) {
  const Volume* known = find(id);
  if (known == nullptr || !known->idle()) return;
  if (known->history.in_use_since)
    remembered_.insert(id);
  else
    all_.erase(id);
}

}  // namespace corbd::volume
