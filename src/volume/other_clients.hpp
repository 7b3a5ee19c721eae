// Answers an operator or another node who else has an image.
#pragma once

#include "health_tracker.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class OtherClients {
 public:
  OtherClients(const Ports& ports, const VolumeMap& volumes, const HealthTracker& health)
      : ports_(ports), volumes_(volumes), health_(health) {}
  /// Implement Volumes::holders() and take_image().
  task<result<Holding>> holders(ImageAt at, Until until);
  task<result<Holding>> take_image(ImageAt at, Until until);
  task<Users> users(std::string cluster_id, Until until);

 private:
  struct Place {
    image::Access to;
    image::Key key;
    bool has_device;  ///< on this node
  };
  task<result<Place>> find(ImageAt at, Until until);
  task<result<Holding>> look(const Place& place, const std::string& volume_id, Until until);
  const Ports& ports_;
  const VolumeMap& volumes_;
  const HealthTracker& health_;
};

}  // namespace corbd::volume
