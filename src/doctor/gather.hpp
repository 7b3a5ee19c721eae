// Readings of which only the doctor has need.
#pragma once

#include "inputs.hpp"

namespace corbd::doctor {

/// The keyrings of a host without an orchestrator.
struct Keyrings {
  std::vector<KeySeen> keys;
  std::vector<std::string> wrong;  ///< why a file of `mounts_dir` cannot be mounted
};
/// Who serves a volume, before its own attributes say it.
struct Choosing {
  cephcsi::Mounter unnamed = cephcsi::Mounter::nbd;  ///< where they say nothing
  cephcsi::MounterRules rules = {};                  ///< before anything they say
};
Keyrings read_keyrings(const std::string& mounts_dir, const std::string& ceph_dir, const Choosing& choosing = {});

}  // namespace corbd::doctor
