// What an agent does before its first healing, so that stalls are short.
#pragma once

#include <list>

#include "corbd/core/gate.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class HeadStart {
 public:
  HeadStart(executor control, Clock& clock, const Ports& ports, const VolumeMap& volumes)
      : control_(std::move(control)), clock_(clock), ports_(ports), volumes_(volumes) {}
  /// As Shell's.
  task<result<std::vector<std::string>>> preopen(Until until);
  task<> fence_early(Until until);

 private:
  struct Preopening;
  task<result<Preopening>> plan(Until until);
  task<> connect_ahead(image::Access access, std::size_t images, Until until);
  task<> preopen_images(Preopening& preopening);
  task<> fence_one(image::Access access, Until until);
  executor control_;
  Clock& clock_;
  const Ports& ports_;
  const VolumeMap& volumes_;
  /// Here, because a dying process ends coroutines in any order.
  std::list<Gate> gates_;
};

}  // namespace corbd::volume
