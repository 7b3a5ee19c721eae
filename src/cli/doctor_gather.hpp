// Readings that the doctor's questions share.
#pragma once

#include "doctor.hpp"

namespace corbd::cli {

/// Of config.json; without one the cluster of `ceph_conf`, unless that is empty.
result<std::vector<rbd::ClusterEntry>> read_clusters(const std::string& config_dir, const std::string& ceph_conf);
/// None if there is no mounters.json.
result<cephcsi::MounterRules> read_mounter_rules(const std::string& config_dir);
/// The volume IDs of an agent's records.
std::set<std::string> read_recorded(const std::string& state_dir);
/// The same, if each can be read. A folder that is not there has none.
result<std::set<std::string>> read_all_recorded(const std::string& state_dir);
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
/// --default-mounter.
cephcsi::Mounter unnamed_mounter(const Doctor& options);
/// `root`: where the host's root folder is seen; empty: here.
Module rbd_module(const std::string& root, const std::string& kernel);

}  // namespace corbd::cli
