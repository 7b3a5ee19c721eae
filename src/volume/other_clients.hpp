// Answers an operator or another node who else has an image.
#pragma once

#include "health_tracker.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class OtherClients {
 public:
  OtherClients(const Ports& ports, const VolumeMap& volumes, const HealthTracker& health)
      : ports_(ports), volumes_(volumes), health_(health) {}
  /// Implements Volumes::holders().
  task<result<Holding>> holders(ImageAt at, bool take, Until until);
  task<Users> users(std::string cluster_id, Until until);

 private:
  task<result<Holding>> look(const image::Access& to, const image::Key& key, const ImageAt& at, bool take, Until until);
  const Ports& ports_;
  const VolumeMap& volumes_;
  const HealthTracker& health_;
};

}  // namespace corbd::volume
