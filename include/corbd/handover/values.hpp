// Messages between two agents after the greeting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "corbd/device/values.hpp"

namespace corbd::handover {

/// A message. Only the fields that belong to its kind are set.
struct PeerMessage {
  enum class What { ready, begins, lock, loaded, listener, link, served, end } what = What::ready;
  std::string volume_id = {};                     ///< with `link`
  std::uint32_t device = 0;                       ///< with `link` and `served`
  std::vector<std::string> unopened_images = {};  ///< with the next agent's `ready`
  bool registered = false;                        ///< with `listener`
  device::Kind kind = device::Kind();             ///< kind of the device
  bool operator==(const PeerMessage&) const = default;
  bool has_descriptor() const { return what == What::lock || what == What::listener || what == What::link; }
};

}  // namespace corbd::handover
