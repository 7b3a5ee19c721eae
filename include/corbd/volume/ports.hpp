// Ports of the shell, and its listeners.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/device/kernel_client.hpp"
#include "corbd/device/served.hpp"
#include "corbd/host/daemons.hpp"
#include "corbd/host/fscrypt.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/luks.hpp"
#include "corbd/image/image.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/plan/planner.hpp"
#include "corbd/volume/record_store.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::volume {

struct Cluster {
  std::vector<std::string> monitors;
  std::string rados_namespace;
  cephcsi::ReadPolicy reads = {};
  std::vector<std::string> ignored = {};  ///< a sentence for each setting that has no effect
  std::string reads_unknown = {};         ///< why `reads` is not the wished policy; soon it may be. Empty: it is
};

/// Port to the configuration of clusters. Each answer is read again from the files: config.json, cluster-mapping.json.
class ClusterDirectory {
 public:
  virtual ~ClusterDirectory() = default;
  virtual result<Cluster> find(const std::string& cluster_id) const = 0;
  /// Returns where a mirror of that place's images may be, in the order to try.
  virtual result<std::vector<image::Place>> mirrors_of(const image::Place& place) const = 0;
  /// Returns the clusters that mirror this one.
  virtual result<std::vector<std::string>> mirrors_of(const std::string& cluster_id) const = 0;
};

/// Port to paths and files of this node that are no devices and no mounts. None of the calls can hang on a device.
class NodeFiles {
 public:
  virtual ~NodeFiles() = default;
  /// Returns the path in mountinfo's form: without "//" and the like, and with the links that lead to kubelet's folder
  /// resolved.
  virtual std::string real_path(std::string path) const = 0;
  /// Checks that the path is below kubelet's folder and free of links (host::check_path). Staging paths must exist.
  virtual task<result<>> check_path(std::string path, bool must_exist) = 0;
  /// Whether a helper of an earlier agent holds the file.
  virtual bool busy(const std::string& busy_file) const = 0;
  /// Reads image-meta.json in the staging path (volume/stash_file.hpp).
  virtual task<result<std::optional<cephcsi::Stash>>> read_stash(std::string staging_path) = 0;
  virtual task<result<>> write_stash(std::string staging_path, cephcsi::Stash stash) = 0;
  /// `log`: rbd-nbd's log file, which is removed too (volume/stash_file.hpp); "": none.
  virtual task<result<>> drop_stash(std::string staging_path, std::string log) = 0;
};

/// How new the answer about a Secret must be. A Secret that is not read `now` was read within the last minute.
enum class SecretAge {
  named_before,  ///< the PersistentVolume may have been made again since, with another Secret
  named_now,     ///< the PersistentVolume is read
  now            ///< so is the Secret
};

/// Port to Kubernetes, if there is one. Each call answers within seconds, even if only that the answer is unknown.
class Orchestrator {
 public:
  virtual ~Orchestrator() = default;
  virtual task<Attachment> attachment(std::string volume_id) = 0;
  /// Returns the node where that client runs.
  virtual task<plan::HolderNode> holder_node(plan::HolderQuery query) = 0;
  /// Returns the content of the volume's node-stage Secret. `persistent_volume`: its name from the last stage or
  /// publish; else empty.
  virtual task<plan::StageSecret> stage_secret(std::string volume_id, std::string persistent_volume,
                                               SecretAge age = SecretAge::named_now) = 0;
};

/// All ports of the shell. Every port outlives the shell.
struct Ports {
  image::Clusters& clusters;
  device::Served devices;
  device::KernelClient& kernel;
  host::Mounts& mounts;
  host::Filesystems& filesystems;
  host::Daemons& daemons;
  host::Luks& luks;
  host::Fscrypt& fscrypt;
  kms::Kms& kms;
  RecordStore& records;
  ClusterDirectory& directory;
  NodeFiles& files;
  Orchestrator& orchestrator;
};

/// Receives the shell's notifications on the control thread. Every method is optional. A listener outlives the shell,
/// and may call it back at once.
class Listener {
 public:
  virtual ~Listener() = default;
  /// The volume may need healing: its device lost its server, its client was cut off, or its image's size changed.
  virtual void report_failure(const std::string& /*volume_id*/, const std::string& /*why*/) {}
  /// Reports an Event for people that is no change of health.
  virtual void notify(const std::string& /*volume_id*/, const Notice& /*notice*/) {}
  /// The volume's health changed.
  virtual void changed(const Change& /*change*/) {}
  /// The volume was staged or published, perhaps not for the first time.
  virtual void used(const std::string& /*volume_id*/) {}
};

}  // namespace corbd::volume
