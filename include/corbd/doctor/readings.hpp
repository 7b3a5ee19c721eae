// What both the doctor and the check before a migration read of a node.
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

/// What is known of a module of the kernel, which only some volumes need.
enum class Module { present, loadable, absent };
/// An agent's records.
struct Records {
  std::set<std::string> volumes;                          ///< their IDs
  std::set<std::string> by_kernel;                        ///< of these, what the kernel's client serves
  std::set<std::string> read_only;                        ///< of these, what nobody writes
  std::set<std::string> blocks;                           ///< of these, what is used as a raw block device
  std::map<std::string, std::uint32_t> numbers;           ///< device number, by volume ID
  std::map<std::string, plan::Combination> combinations;  ///< by volume ID, of the records that this version reads
  result<> complete;                                      ///< an error: `volumes` lacks some
};

struct Readings {
  Options options;
  std::string kernel;  ///< uname -r
  bool nbd_there = false;
  Module rbd = Module::absent;  ///< the kernel's own RBD client
  Records records;              ///< none if the folder is not there
  result<std::vector<rbd::ClusterEntry>> clusters = Error{errc::not_found, "config.json was not read"};
  result<cephcsi::MounterRules> mounters = cephcsi::MounterRules();  ///< of mounters.json; empty if it is not there
};
/// `root`: where the host's root folder is seen; empty: here.
Readings read_node(const Options& options, const std::string& root);

/// What the agent says of a volume.
struct AgentVolume {
  std::string state;                                       ///< "staged", "unproven"
  std::optional<bool> caches_before_flush = std::nullopt;  ///< volume::Status::caches_before_flush
  bool cache_lost = false;                                 ///< volume::Status::cache_lost
};
/// By volume ID. 10 s.
result<std::map<std::string, AgentVolume>> ask_volumes(const std::string& endpoint);

}  // namespace corbd::doctor
