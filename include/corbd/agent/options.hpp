// What an agent is told when it starts. The command line fills it in.
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
  std::string kms_config_map = "csi-kms-connection-details";  ///< in pod_namespace, instead of a file in that folder
  std::string pod_namespace;                                  ///< empty: no pod
  std::string metricsip = "127.0.0.1", metricspath = "/metrics";
  std::uint16_t metricsport = 0;            ///< 0: no HTTP
  std::string volume_metrics = "counters";  ///< none, counters or latency
  int slow_request_s = 30;                  ///< 0: no request is slow
  std::vector<std::string> failpoints;
  bool heal_without_proof = false;
  bool unstage_orphans = false;
  bool watch_all_attachments = false;
  int heal_at_once = 16;
  int io_threads = 1;
  int shutdown_grace_s = 90;
  int leave_grace_s = 200;  ///< in a pod with `handover`
  bool volume_health = false;
  bool fence_out_of_service = false;  ///< images are taken from clients of nodes that are out of service
  bool fencing_only = false;          ///< nothing but the FenceController: no volumes, no CSI socket
  bool fencing = false;  ///< this node's address is written into the metadata of its images, for ceph-csi's controller
  std::string addons_endpoint;                            ///< CSI-Addons' socket; empty: none
  std::string domainlabels;                               ///< labels of the node that are its topology, comma separated
  std::string topology;                                   ///< those labels given by hand, "name=value,..."
  std::vector<std::string> ignored;                       ///< flags of ceph-csi that were given and mean nothing here
  bool read_affinity = false;                             ///< where config.json wants it and names no labels
  std::string crush_labels;                               ///< the node's labels that say where it is, comma separated
  bool allow_core_dumps = false;                          ///< to find a defect; a dump has the keys of all volumes
  std::string default_mounter = "rbd-nbd";                ///< for volumes that name none: rbd or rbd-nbd
  std::string mkfs_options, fsck_options, mount_options;  ///< "ext4:OPTIONS;xfs:OPTIONS"
  std::string crush_location;                             ///< "host:a|zone:b", instead of labels
  std::optional<bool> registers;  ///< kubelet is told of the driver; otherwise where its plugins_registry is
  std::string endpoint_on_host;   ///< path of the CSI socket; empty: that of `endpoint`
  bool standalone = false;        ///< without kubelet and API server; the callers are this host's own root
  std::string ceph_conf;          ///< names the cluster where there is no config.json; empty: none does
  bool handover = false;          ///< the devices of the agent that serves are taken over without a break
  std::string accept_refused;     ///< with handover: until when (UTC) volumes that neither agent could open do not hold
                                  ///< it up; empty: they do
  std::string pod;                ///< UID of its pod, where a DaemonSet has a second one beside it; empty: no pod
  bool keeper = false;            ///< a parent process starts this agent again when it dies, with its links
  bool verbose = false;
};

}  // namespace corbd::agent
