#pragma once

#include <cstdint>
#include <string>

#include "corbd/core/fd.hpp"
#include "corbd/device/values.hpp"

namespace corbd::device {

/// Our end of a device's socket pair, on its way between two agents.
struct LinkSocket {
  std::string volume_id;
  std::uint32_t device = 0;
  Fd socket;
  Kind kind = Kind();
};

}  // namespace corbd::device
