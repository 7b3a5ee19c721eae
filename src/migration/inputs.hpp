// Inputs before a migration or a rollback, and the forecast for each volume.
#pragma once

#include <chrono>
#include <map>
#include <set>

#include "corbd/cephcsi/key.hpp"
#include "corbd/cephcsi/parameters.hpp"
#include "corbd/cephcsi/stash.hpp"
#include "corbd/device/kernel_client.hpp"
#include "corbd/doctor/finding.hpp"
#include "corbd/doctor/readings.hpp"
#include "corbd/kube/access.hpp"
#include "corbd/kube/objects.hpp"
#include "corbd/migration/migration.hpp"
#include "corbd/rbd/cluster_mapping.hpp"

namespace corbd::migration {

using cephcsi::KeyType;
using doctor::Finding;
using doctor::Grade;
using doctor::Module;

/// A configured nbd device.
struct NbdUser {
  device::Seen seen;
  std::vector<int> daemons = {};  ///< IDs of the rbd-nbd processes that serve it
  /// Whether each of `daemons` acknowledges only stored writes, by its command line or its ceph.conf. An error:
  /// unknown.
  result<bool> cache_off = Error{errc::not_found, "no process of rbd-nbd was seen"};
  bool sends_flushes = true;  ///< the kernel sends it flushes, as its queue/write_cache shows
};
/// A folder where kubelet has a volume staged.
struct StagedAt {
  std::string volume_id;  ///< empty: nothing there names it
  std::string path;       ///< staging path
  bool block = false;
  std::string persistent_volume;  ///< its name; empty: no file of the node has it
  result<std::optional<cephcsi::Stash>> stash = std::optional<cephcsi::Stash>();
  std::int64_t stash_version = 0;                                               ///< image-meta.json's; 0: it has none
  std::optional<std::chrono::system_clock::time_point> stashed = std::nullopt;  ///< when image-meta.json was written
  bool mounted = false;
  std::string device;  ///< device below the mount: "nbd0", "rbd0"; empty: unknown
};

/// Content of a node-stage secret.
struct StageSecret {
  bool user = false, key = false, passphrase = false;
  cephcsi::KeyType key_type = cephcsi::KeyType::unknown;  ///< unknown: the text is no key
};
/// The API server's view of a volume.
struct VolumeFacts {
  result<kube::PersistentVolume> volume = Error{errc::unavailable, "nobody was asked"};
  result<StageSecret> secret = Error{errc::unavailable, "nobody was asked"};
  /// Whether it is attached to this node, since before it was staged. failed_precondition, not_found: it is not, or
  /// nothing shows it; any other error: unknown.
  result<> attached = Error{errc::unavailable, "nobody was asked"};
};

struct ForecastInputs : doctor::Readings {
  bool agent = false;  ///< an agent answers here
  /// The agent's view of its volumes, by volume ID.
  result<std::map<std::string, doctor::AgentVolume>> volumes = Error{errc::unavailable, "no agent was asked"};
  std::vector<NbdUser> nbd;
  std::vector<std::uint32_t> zeroing_numbers;  ///< nbd numbers, in use or free, that take WRITE_ZEROES
  std::vector<device::Mapped> krbd;
  result<> daemons;  ///< an error: NbdUser::daemons is unknown
  std::vector<StagedAt> staged;
  result<> kubelet;  ///< an error: `staged` is incomplete
  result<> mounts;   ///< an error: StagedAt::mounted and ::device are unknown
  /// Folders of other RBD drivers, if kubelet has none of this driver.
  std::vector<std::string> other_drivers;
  result<std::vector<rbd::ClusterMapping>> mappings = std::vector<rbd::ClusterMapping>();
  result<std::string> kms_config = Error{errc::not_found, "the KMS config was not read"};
  /// Proxy variables of ceph-csi's own process that have a value: its KMS clients obey them.
  std::vector<std::string> proxies;
  result<> api;                              ///< an error: there is no API server, or it does not answer
  std::map<std::string, VolumeFacts> facts;  ///< by volume ID
  /// Whether the driver's volumes are attached at all; asked if a VolumeAttachment is missing. An error: unknown.
  result<bool> attaches = true;
};

/// Forecast for one volume.
struct VolumeForecast {
  std::string volume_id, claim, persistent_volume, path, device;
  std::string now, after, next_stage;       ///< present server; next_stage: the server from its next NodeStageVolume on
  std::vector<std::string> not_known = {};  ///< questions that its next stage asks Ceph
  std::vector<Finding> findings;
};
struct Forecast {
  std::vector<Finding> node;
  std::vector<VolumeForecast> volumes;
};

// --- pure

/// Reads a node-stage secret, as kubelet passes it.
StageSecret read_stage_secret(const std::map<std::string, Secret>& data);

Forecast forecast_migration(const ForecastInputs& inputs);
Forecast forecast_rollback(const ForecastInputs& inputs);
/// Returns the exit code for all findings (corbd/migration/migration.hpp).
int exit_code(const Forecast& forecast);

// --- thin

ForecastInputs gather(const Options& options);
/// Fills in NbdUser::daemons and ::cache_off, within 10 s. `root`: prefix of the host's root folder; empty: it is ours.
result<> find_daemons(const std::string& root, std::vector<NbdUser>& devices);
/// Fills in `api` and `facts`. Asks for single objects, by name; 10 s each, a minute for all.
void ask_api_server(ForecastInputs& inputs, const result<kube::Access>& access, const std::string& node);

}  // namespace corbd::migration
