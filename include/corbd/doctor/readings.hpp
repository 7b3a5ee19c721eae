// What both the doctor and the check before a migration read of a node.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/cephcsi/mounters.hpp"
#include "corbd/core/result.hpp"
#include "corbd/rbd/config_json.hpp"

namespace corbd::doctor {

/// What is known of a module of the kernel, which only some volumes need.
enum class Module { present, loadable, absent };
/// The kernel's own RBD client. `root`: where the host's root folder is seen; empty: here.
Module rbd_module(const std::string& root, const std::string& kernel);

/// uname -r
std::string kernel_release();
/// {6, 1, 0} of "6.1.0-13-amd64"; zeros for what is no number.
using Version = std::array<unsigned, 3>;
Version version_of(std::string_view release);
/// Whether the kernel's RBD client knows keys of type aes256k.
bool kernel_knows_aes256k(std::string_view release);

/// linux/proc_ns.h: the first PID namespace always has this inode.
inline constexpr std::string_view kHostPids = "pid:[4026531836]";
/// Of this process: "pid:[4026531836]".
std::string pid_namespace();

/// A configured nbd device.
struct NbdDevice {
  std::uint32_t index = 0;
  std::string backend;        ///< its identifier, a volume ID; empty: it has none
  bool maker_lives = false;   ///< the process that connected it; means nothing for a device that was served again since
  std::uint32_t waiting = 0;  ///< requests
};
/// `sys`: "/sys".
std::vector<NbdDevice> nbd_devices(const std::string& sys);

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
