#pragma once

#include <string>

#include "corbd/mounting/mounting.hpp"

namespace corbd::mounting {

/// Returns seconds: 80 for an unmount of all, which is less than systemd gives a unit to stop; otherwise 300.
int limit_of(const Options& ask);

/// Returns a service unit that mounts at boot. `program`: path of corbd.
std::string unit_of(const Options& ask, const std::string& program);

}  // namespace corbd::mounting
