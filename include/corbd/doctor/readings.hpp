// Facts of a node that both the doctor and the check before a migration read.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/cephcsi/mounters.hpp"
#include "corbd/core/result.hpp"
#include "corbd/doctor/doctor.hpp"
#include "corbd/plan/combination.hpp"
#include "corbd/rbd/config_json.hpp"

namespace corbd::doctor {

/// State of a kernel module that only some volumes need.
enum class Module { present, loadable, absent };
/// An agent's records.
struct Records {
  std::set<std::string> volumes;                          ///< their IDs
  std::set<std::string> by_kernel;                        ///< volumes that the kernel's client serves
  std::set<std::string> read_only;                        ///< volumes that nobody writes
  std::set<std::string> blocks;                           ///< volumes that are used as raw block devices
  std::map<std::string, std::uint32_t> numbers;           ///< device number, by volume ID
  std::map<std::string, plan::Combination> combinations;  ///< by volume ID, for the records that this version can read
  result<> complete;                                      ///< an error: `volumes` is incomplete
};

struct Readings {
  Options options;
  std::string kernel;  ///< uname -r
  bool nbd_there = false;
  Module rbd = Module::absent;  ///< the kernel's own RBD client
  Records records;              ///< empty if the folder does not exist
  result<std::vector<rbd::ClusterEntry>> clusters = Error{errc::not_found, "config.json was not read"};
  result<cephcsi::MounterRules> mounters = cephcsi::MounterRules();  ///< rules of mounters.json; empty if it is absent
};
/// `root`: prefix of the host's root folder; empty: it is ours.
Readings read_node(const Options& options, const std::string& root);

/// The only thing that takes WRITE_ZEROES back from a number (rule 21).
inline constexpr const char* kLoadNbdAnew =
    "once no nbd device is in use here, run `modprobe -r nbd && modprobe nbd nbds_max=0` on the node, or reboot it";
/// Returns "/dev/nbd0, /dev/nbd3".
std::string paths_of(const std::vector<std::uint32_t>& numbers);
/// Whether a process, a folder of /proc, is ceph-csi's node plugin, or an agent under its name.
bool is_ceph_csi(const std::string& process);

/// The agent's view of a volume.
struct AgentVolume {
  std::string state;                                       ///< "staged", "unproven"
  std::optional<bool> caches_before_flush = std::nullopt;  ///< volume::Status::caches_before_flush
  bool cache_lost = false;                                 ///< volume::Status::cache_lost
};
/// Returns the volumes by ID. Waits 10 s at most.
result<std::map<std::string, AgentVolume>> ask_volumes(const std::string& endpoint);

}  // namespace corbd::doctor
