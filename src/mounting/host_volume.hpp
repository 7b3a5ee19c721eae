// `corbd host-volume`: a plugin of Nomad for dynamic host volumes (docs/sources.md#nomad-host-volumes).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/mounting/mounting.hpp"

namespace corbd::mounting {

/// Nomad's request to the plugin, from its environment.
struct HostVolume {
  MountSpec spec;               ///< for `create`; for `delete` only the folder, which is the volume's own
  std::string elsewhere;        ///< for `delete`: the folder that Nomad names, if it is not the volume's own
  std::uint64_t min_bytes = 0;  ///< capacity_min; 0: any size
  /// For `create`: why the volume may only stay mounted, if it is. `spec` then has no options of its parameters.
  std::optional<Error> refused_anew;
};

/// Limits for Nomad's users on this client. A user who may create a host volume in any namespace of Nomad chooses its
/// parameters, and root carries them out.
struct HostVolumeRules {
  std::vector<std::string> users;       ///< Ceph users
  std::vector<std::string> pools;       ///< "*": any, and volumes that are named by their ID
  std::vector<std::string> files;       ///< files that conf, keyring and passphrase-file may name
  std::vector<std::string> attributes;  ///< attribute names
  std::vector<std::string> clusters;    ///< cluster IDs; the cluster of `conf` needs none
  std::vector<std::string> kms;         ///< KMS IDs
  std::vector<std::string> options;     ///< names of mount options that gain rights on the host
};
/// Parses a file in the format of mounts.d, with lists: "pools = rbd, nomad". invalid_argument names the line.
result<HostVolumeRules> parse_host_volume_rules(std::string_view text);

/// `variable` reads the environment; empty: unset. invalid_argument: it lacks something, or the volume's parameters are
/// not the keys of a file of mounts.d. permission_denied: `rules` do not allow it.
result<HostVolume> host_volume_of(const std::string& operation, const result<HostVolumeRules>& rules,
                                  const std::function<std::string(const char* name)>& variable);

/// Returns the exit code, as run() does. Only the answer goes to stdout.
int serve_host_volume(const Options& ask);

}  // namespace corbd::mounting
