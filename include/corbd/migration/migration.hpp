// `corbd doctor --before-migration` and `--before-rollback`: forecasts for each volume that is staged on this node what
// happens when the agent replaces ceph-csi's node plugin, or the other way round. Gathered, judged and shown in three
// parts, like the doctor's other checks.
#pragma once

#include <string>

#include "corbd/doctor/doctor.hpp"

namespace corbd::migration {

/// Options of the doctor, and of the forecast.
struct Options : doctor::Options {
  std::string node;       ///< name of the node; empty: unknown
  std::string root;       ///< prefix of the host's /proc, /sys and kubelet's folders; empty: none
  bool rollback = false;  ///< ceph-csi replaces this agent
};

/// Gathers, judges and prints. Exit code, over all findings: 0 ok; 1: I/O waits for a while, or something is unknown;
/// 2: I/O waits until somebody acts, an unstage would report success wrongly, or acknowledged writes would be lost.
int check_migration(const Options& options);

}  // namespace corbd::migration
