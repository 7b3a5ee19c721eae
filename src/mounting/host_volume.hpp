// `corbd host-volume`: a plugin of Nomad for dynamic host volumes (docs/sources.md#nomad-host-volumes).
#pragma once

#include <cstdint>
#include <functional>

#include "corbd/mounting/mounting.hpp"

namespace corbd::mounting {

/// What Nomad asks of the plugin, as its environment has it.
struct HostVolume {
  MountSpec spec;               ///< of `create`; of `delete` only the folder
  std::uint64_t min_bytes = 0;  ///< capacity_min; 0: any size
};

/// `variable` is of the environment; empty: unset. invalid_argument: it lacks something, or the volume's parameters
/// are not the keys of a file of mounts.d.
result<HostVolume> host_volume_of(const std::string& operation,
                                  const std::function<std::string(const char* name)>& variable);

/// Exit code as run(). Only the answer goes to stdout.
int serve_host_volume(const Options& ask);

}  // namespace corbd::mounting
