// Options of an agent. The command line fills them in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace corbd::agent {

struct Options {
  std::string nodeid, endpoint = "unix:///tmp/csi.sock", drivername = "rbd.csi.ceph.com";
  std::string pluginpath = "/var/lib/kubelet/plugins", kubelet_dir = "/var/lib/kubelet";
  std::string state_dir;  ///< default <pluginpath>/<drivername>/corbd
  std::string runtime_dir = "/run/corbd", config_dir = "/etc/ceph-csi-config";
  std::string kms_config_dir = "/etc/ceph-csi-encryption-kms-config";
  std::string kms_config_map = "csi-kms-connection-details";  ///< in pod_namespace, used instead of that folder's file
  std::string pod_namespace;                                  ///< empty: no pod
  std::string metricsip = "127.0.0.1", metricspath = "/metrics";
  std::uint16_t metricsport = 0;            ///< 0: no HTTP
  std::string volume_metrics = "counters";  ///< none, counters or latency
  std::string trim_every;                   ///< "7d": each filesystem is trimmed so often; empty: none is
  int slow_request_s = 30;                  ///< 0: no request is slow
  std::vector<std::string> failpoints;
  bool heal_without_proof = false;
  bool unstage_orphans = false;
  bool watch_all_attachments = false;
  int heal_at_once = 16;
  int io_threads = 1;
  int max_volumes = 0;                ///< 0: what the node has room for
  bool remove_startup_taint = false;  ///< DRIVER/agent-not-ready
  int shutdown_grace_s = 90;
  int leave_grace_s = 200;  ///< used in a pod with `handover`
  bool volume_health = false;
  bool fence_out_of_service = false;  ///< images are taken from clients of nodes that are out of service
  bool fencing_only = false;          ///< runs only the FenceController: no volumes, no CSI socket
  bool fencing = false;  ///< this node's address is written into the metadata of its images, for ceph-csi's controller
  std::string addons_endpoint;              ///< CSI-Addons' socket; empty: none
  std::string domainlabels;                 ///< node labels that form its topology, comma separated
  std::string topology;                     ///< topology labels set by hand, "name=value,..."
  std::vector<std::string> ignored;         ///< flags of ceph-csi that were given and have no effect here
  bool read_affinity = false;               ///< default where config.json enables it and names no labels
  std::string crush_labels;                 ///< node labels that say where the node is, comma separated
  bool quiesce = false;                     ///< snapshots freeze the filesystem of volumes whose mapOptions do not say
  int freeze_limit_s = 5;                   ///< for so long at most
  bool allow_core_dumps = false;            ///< for finding defects; a dump has the keys of all volumes
  std::string default_mounter = "rbd-nbd";  ///< mounter of volumes that name none: rbd or rbd-nbd
  std::string mkfs_options, fsck_options, mount_options;  ///< "ext4:OPTIONS;xfs:OPTIONS"
  std::string crush_location;                             ///< "host:a|zone:b", instead of labels
  std::optional<bool> registers;  ///< whether kubelet is told of the driver; unset: if its plugins_registry exists
  std::string endpoint_on_host;   ///< path of the CSI socket; empty: the path in `endpoint`
  bool standalone = false;        ///< no kubelet and no API server; the callers are this host's own root
  std::string ceph_conf;          ///< names the cluster where there is no config.json; empty: there is none
  bool handover = false;          ///< takes over the serving agent's devices without a break
  std::string accept_refused;     ///< with handover: until this time (UTC) volumes that neither agent could open do not
                                  ///< delay it; empty: they do
  std::string pod;                ///< UID of the pod, if a DaemonSet runs a second one beside it; empty: no pod
  bool keeper = false;            ///< a parent process restarts this agent, with its links, when it dies
  bool no_rbd_nbd = false;        ///< no rbd-nbd will serve a device of this node: devices offer WRITE_ZEROES
  bool verbose = false;
};

}  // namespace corbd::agent
