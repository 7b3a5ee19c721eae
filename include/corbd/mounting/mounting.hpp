// `corbd mount`, `corbd unmount`, `corbd expand` and `corbd mounts`: volumes of a host without an orchestrator.
#pragma once

#include <string>

#include "corbd/mounting/spec.hpp"

namespace corbd::mounting {

inline constexpr const char* kMountsDir = "/etc/corbd/mounts.d";
inline constexpr const char* kHostVolumeRules = "/etc/corbd/host-volumes.conf";

struct Options {
  enum class What { none, mount, unmount, expand, list, host_volume };
  What what = What::none;

  MountSpec spec;
  std::string operation;    ///< for a host volume: fingerprint, create or delete
  bool all = false;         ///< every claim; for a mount, every file of mounts_dir, too
  bool refresh = false;     ///< mounts nothing: only gives the plugin the present keys of what is mounted
  bool write_unit = false;  ///< prints a unit, and mounts nothing
  bool wait = false;        ///< waits for a plugin that does not answer yet
  std::string endpoint = "unix:///run/corbd/csi.sock", runtime_dir = "/run/corbd";
  std::string root = "/var/lib/corbd/mounts";  ///< claims and staging paths
  std::string mounts_dir = kMountsDir;
  std::string rules = kHostVolumeRules;    ///< for a host volume: what Nomad's users may ask for
  std::string output = "text";             ///< "text" or "json"
  int parallel = 4;                        ///< with `all`: mounts at the same time
  int timeout_s = 0;                       ///< 0: see limit_of
  std::string program = "/proc/self/exe";  ///< its subcommand helper looks at mounts
};

/// Carries out the command. Progress and problems go to stderr, answers to stdout. Exit code: 0 done, 1 failed, 3 no
/// plugin answers, EX_USAGE for options that contradict each other.
int run(const Options& ask);

}  // namespace corbd::mounting
