// What both the doctor and the check before a migration read of a node.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/cephcsi/mounters.hpp"
#include "corbd/core/result.hpp"
#include "corbd/rbd/config_json.hpp"

namespace corbd::doctor {

/// What is known of a module of the kernel, which only some volumes need.
enum class Module { present, loadable, absent };
/// The kernel's own RBD client. `root`: where the host's root folder is seen; empty: here.
Module rbd_module(const std::string& root, const std::string& kernel);

/// Of config.json; without one the cluster of `ceph_conf`, unless that is empty.
result<std::vector<rbd::ClusterEntry>> read_clusters(const std::string& config_dir, const std::string& ceph_conf);
/// None if there is no mounters.json.
result<cephcsi::MounterRules> read_mounter_rules(const std::string& config_dir);
/// An agent's records.
struct Records {
  std::set<std::string> volumes;  ///< their IDs
  result<> complete;              ///< an error: `volumes` lacks some
};
/// A folder that is not there has none.
Records read_records(const std::string& state_dir);

/// What the agent says of its volumes: volume ID to state ("staged", "unproven"). 10 s.
result<std::map<std::string, std::string>> ask_volumes(const std::string& endpoint);

}  // namespace corbd::doctor
