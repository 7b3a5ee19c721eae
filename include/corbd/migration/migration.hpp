// `corbd doctor --before-migration` and `--before-rollback`: what becomes of each volume that is staged on this node
// when the agent takes the place of ceph-csi's node plugin, or the other way round. Gathered, judged and shown in three
// parts, like the doctor's other checks.
#pragma once

#include <string>

#include "corbd/doctor/doctor.hpp"

namespace corbd::migration {

/// The doctor's own, and:
struct Options : doctor::Options {
  std::string node;       ///< its name; empty: not known
  std::string root;       ///< where the host's /proc, /sys and folders of kubelet are seen; empty: here
  bool rollback = false;  ///< ceph-csi replaces this agent
};

/// Gathers, judges and prints. Exit code, of everything that was found: 0 ok; 1: I/O waits for a while, or something is
/// not known; 2: I/O waits until somebody acts, an unstage would say that it is done and is not, or acknowledged writes
/// would be lost.
int check_migration(const Options& options);

}  // namespace corbd::migration
