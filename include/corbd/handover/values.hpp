// What two agents say to each other after the greeting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "corbd/device/values.hpp"

namespace corbd::handover {

struct Word {
  enum class What { ready, begins, lock, loaded, listener, link, served, end } what = What::ready;
  std::string volume_id = {};                     ///< of a link
  std::uint32_t device = 0;                       ///< of `link` and `served`
  std::vector<std::string> unopened_images = {};  ///< of the next agent's `ready`: of these volumes
  bool registered = false;                        ///< of a listener
  device::Kind kind = device::Kind();             ///< of the device
  bool operator==(const Word&) const = default;
  bool has_descriptor() const { return what == What::lock || what == What::listener || what == What::link; }
};

}  // namespace corbd::handover
