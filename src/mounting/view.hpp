// Formats the output of `corbd mounts`. Pure.
#pragma once

#include <boost/json/array.hpp>
#include <string>
#include <vector>

#include "corbd/manager/manager.hpp"

namespace corbd::mounting {

/// State of a claim, and of the mount at its target.
struct MountState {
  std::string word;  ///< "mounted", "dead", "unknown", "unmounted", "half-mounted", "half-unmounted", "hidden"
  std::string hint;  ///< the cause, and the way out; empty if all is well
};
MountState state_of(const manager::Manager::Held& held);

std::string mounts_table(const std::vector<manager::Manager::Held>& all);
boost::json::array mounts_json(const std::vector<manager::Manager::Held>& all);

}  // namespace corbd::mounting
