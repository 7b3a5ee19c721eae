#include "flags.hpp"

#include <array>

namespace corbd::cli {
namespace {

using Kind = Flag::Kind;

constexpr auto kTable = std::to_array<Flag>({
    // ceph-csi has these too.
    {"nodeid", Kind::text, &Run::nodeid, "Name of this node, as the orchestrator knows it", "NODE_ID"},
    {"endpoint", Kind::text, &Run::endpoint, "CSI socket, unix:///path", "CSI_ENDPOINT"},
    {"csi-addons-endpoint", Kind::text, &Run::addons_endpoint, "CSI-Addons socket, unix:///path [none]",
     "CSI_ADDONS_ENDPOINT"},
    {"drivername", Kind::text, &Run::drivername, "CSI driver name", "DRIVER_NAME"},
    {"pluginpath", Kind::text, &Run::pluginpath, "Folder of kubelet's plugins", "PLUGIN_PATH"},
    {"metricsport", Kind::number, &Run::metricsport, "HTTP port for metrics, /healthz and /readyz; 0 turns HTTP off"},
    {"metricspath", Kind::text, &Run::metricspath, "HTTP path of the metrics"},
    {"enable-fencing", Kind::boolean, &Run::fencing,
     "Write this node's client address into the metadata of its images, for ceph-csi's controller"},
    {"domainlabels", Kind::text, &Run::domainlabels, "Node labels that are its topology domains, comma-separated"},
    {"enable-read-affinity", Kind::boolean, &Run::read_affinity,
     "Read from the nearest OSD in clusters where config.json enables it without naming labels"},
    {"crush-location-labels", Kind::text, &Run::crush_labels,
     "Node labels that give its location in the CRUSH map, comma-separated"},
    // Only corbd has these.
    {"default-mounter", Kind::text, &Run::default_mounter,
     "Mounter of a volume whose attributes name none: rbd (the kernel) or rbd-nbd (this agent)"},
    {"crush-location", Kind::text, &Run::crush_location,
     "This node's place in the CRUSH map, instead of the labels' values: host:node-1|zone:z1"},
    {"topology", Kind::text, &Run::topology, "Values of the --domainlabels, instead of the node's own: name=value,..."},
    {"fence-out-of-service", Kind::boolean, &Run::fence_out_of_service,
     "Take a volume that is attached to this node from a client whose node is tainted out-of-service or gone: cut that "
     "one client off from the cluster first"},
    {"fencing-only", Kind::boolean, &Run::fencing_only,
     "Serve only the fencing of CSI-Addons on --csi-addons-endpoint, beside ceph-csi's controller: no volumes"},
    {"kubelet-dir", Kind::text, &Run::kubelet_dir, "kubelet's folder; every staging path and target must lie below it",
     "KUBELET_DIR"},
    {"register", Kind::boolean, &Run::registers,
     "Register this driver with kubelet, as node-driver-registrar does [if <kubelet-dir>/plugins_registry exists]"},
    {"kubelet-registration-path", Kind::text, &Run::endpoint_on_host,
     "Path of the CSI socket on the host, as kubelet sees it [the path of --endpoint]"},
    {"state-dir", Kind::text, &Run::state_dir,
     "Folder for the records; must be on a disk [<pluginpath>/<drivername>/corbd]"},
    {"runtime-dir", Kind::text, &Run::runtime_dir,
     "Folder for the Ceph keys of staged volumes and the admin socket; must be on tmpfs", "CORBD_RUNTIME_DIR"},
    {"config-dir", Kind::text, &Run::config_dir, "Folder of ceph-csi's config.json"},
    {"kms-config-dir", Kind::text, &Run::kms_config_dir, "Folder of ceph-csi's config.json for key management systems"},
    {"kms-configmap", Kind::text, &Run::kms_config_map,
     "ConfigMap in --pod-namespace with the key management systems, if --kms-config-dir has no config.json",
     "KMS_CONFIGMAP_NAME"},
    {"pod-namespace", Kind::text, &Run::pod_namespace,
     "Namespace of the pod that this agent is in, where Secrets and ConfigMaps of key management systems may be",
     "POD_NAMESPACE"},
    {"mkfs-options", Kind::text, &Run::mkfs_options,
     "Options of mkfs for volumes whose attributes name none: TYPE:OPTIONS;... (ext4:-m1 -Enodiscard) [as ceph-csi]"},
    {"fsck-options", Kind::text, &Run::fsck_options, "Options of fsck: TYPE:OPTIONS;... (ext4:-p -f) [-a]"},
    {"mount-options", Kind::text, &Run::mount_options,
     "Mount options that every volume gets before its own: TYPE:OPTIONS;... (ext4:errors=remount-ro)"},
    {"metricsip", Kind::text, &Run::metricsip, "IP address for HTTP", "POD_IP"},
    {"volume-metrics", Kind::text, &Run::volume_metrics,
     "What the metrics show of each volume's I/O: none, counters, or latency (counters and a histogram per operation)"},
    {"slow-request", Kind::number, &Run::slow_request_s,
     "Seconds from which on a read, write, flush or discard is slow: it is counted and logged; 0: none "
     "is",
     nullptr, 0, 86400},
    {"trim-every", Kind::text, &Run::trim_every,
     "How often to trim each filesystem (fstrim): minutes, hours or days, such as 7d; 1m at least [never]"},
    {"failpoint", Kind::text, &Run::failpoints, "NAME=kill|stop|error|hang[@N]; for tests only"},
    {"handover", Kind::boolean, &Run::handover,
     "If an agent already serves with the same --runtime-dir, take its devices over without a break; that agent then "
     "ends"},
    {"accept-refused", Kind::text, &Run::accept_refused,
     "A time in UTC, at most 7 days ahead, such as 2026-11-28T12:00:00Z. With --handover, an agent that starts before "
     "this time takes over although it cannot open volumes that the present agent serves, if the present one could not "
     "open them again either. Their I/O then waits until the reason is gone"},
    {"pod", Kind::text, &Run::pod,
     "UID of the pod that this agent is in. With --handover: an agent that has given its devices away does not end, "
     "but "
     "stays in reserve",
     "POD_UID"},
    {"keeper", Kind::boolean, &Run::keeper,
     "Run the agent under a keeper, a small process that holds its links when it dies, and restarts it: requests in "
     "flight are then answered without a wait for the kernel",
     "CORBD_KEEPER"},
    {"standalone", Kind::boolean, &Run::standalone,
     "Serve this host without kubelet and API server, for `corbd mount`: the CSI socket is <runtime-dir>/csi.sock, the "
     "state is in /var/lib/corbd/agent, and any folder may be a target"},
    {"ceph-conf", Kind::text, &Run::ceph_conf,
     "Ceph's configuration: names the cluster where --config-dir has no config.json; its cluster ID is the fsid "
     "[with --standalone /etc/ceph/ceph.conf]"},
    {"heal-without-proof", Kind::boolean, &Run::heal_without_proof, "Removed: use `corbd heal ID --without-proof`"},
    {"heal-at-once", Kind::number, &Run::heal_at_once, "How many volumes may be healed at the same time", nullptr, 1,
     1024},
    {"io-threads", Kind::number, &Run::io_threads,
     "Threads that serve the devices, for nodes where several volumes are busy at the same time; each device stays on "
     "one of them",
     nullptr, 1, 16},
    {"max-volumes", Kind::number, &Run::max_volumes,
     "Most volumes that this node tells the orchestrator of, and stages; 0: what its nbd numbers, memory, threads and "
     "descriptors allow",
     nullptr, 0, 32768},
    {"remove-startup-taint", Kind::boolean, &Run::remove_startup_taint,
     "Remove the taint DRIVERNAME/agent-not-ready from this node once kubelet has registered the driver and the node's "
     "volumes are served"},
    {"unstage-orphans", Kind::boolean, &Run::unstage_orphans,
     "Unstage volumes that kubelet has forgotten: staged, used by no pod, and not attached to this node for ten "
     "minutes"},
    {"watch-all-volumeattachments", Kind::boolean, &Run::watch_all_attachments,
     "Watch every VolumeAttachment (only this node's, if the API server can select them), instead of just the one that "
     "a volume waits for"},
    {"shutdown-grace", Kind::number, &Run::shutdown_grace_s,
     "Seconds for which devices in use are still served while the node shuts down; after that they answer with I/O "
     "errors",
     nullptr, 0, 86400},
    {"leave-grace", Kind::number, &Run::leave_grace_s,
     "With --handover and --pod: seconds for which an agent that is told to end serves devices in use until the next "
     "agent asks for them; the pod's terminationGracePeriodSeconds must be longer",
     nullptr, 0, 86400},
    {"quiesce", Kind::boolean, &Run::quiesce,
     "Freeze the filesystem of a volume, or hold requests to a raw block device back, while a snapshot of its image is "
     "made, wherever that is done. A volume's mapOptions override this flag: nbd:quiesce, nbd:quiesce=false"},
    {"freeze-limit", Kind::number, &Run::freeze_limit_s,
     "Seconds after which a filesystem that is frozen for a snapshot is thawed in any case; librbd gives a snapshot "
     "up after 10",
     nullptr, 1, 9},
    {"no-rbd-nbd", Kind::boolean, &Run::no_rbd_nbd,
     "This node has no rbd-nbd and will have none, so new devices may offer WRITE_ZEROES: mkfs and BLKZEROOUT then "
     "free "
     "space instead of writing zeroes (Linux 6.12 and newer)"},
    {"volume-health", Kind::boolean, &Run::volume_health,
     "Also serve NodeGetVolumeHealth and NodeGetStorageHealth, which are alpha in CSI 1.13"},
    {"allow-core-dumps", Kind::boolean, &Run::allow_core_dumps,
     "Leave a core dump when the agent crashes; the dump contains Ceph keys and passphrases"},
    {"verbose", Kind::boolean, &Run::verbose, "Log every step"},
    // Flags of ceph-csi that only its own command line uses (cephcsi.cpp).
    {"type"},
    {"nodeserver", Kind::boolean},
    {"controllerserver", Kind::boolean},
    {"version", Kind::boolean},
    {"polltime", Kind::duration},
    {"timeout", Kind::duration},
    // Flags of ceph-csi that corbd accepts and ignores.
    {"drivernamespace"},
    {"stagingpath"},
    {"instanceid"},
    {"clustername"},
    {"setmetadata", Kind::boolean},
    {"pidlimit", Kind::number},
    {"automaxprocs", Kind::boolean},
    {"feature-gates"},
    {"logslowopinterval", Kind::duration},
    {"rbdhardmaxclonedepth", Kind::number},
    {"rbdsoftmaxclonedepth", Kind::number},
    {"maxsnapshotsonimage", Kind::number},
    {"minsnapshotsonimage", Kind::number},
    {"skipforceflatten", Kind::boolean},
    {"enableprofiling", Kind::boolean},
    {"forcecephkernelclient", Kind::boolean},
    {"kernelmountoptions"},
    {"fusemountoptions"},
    {"radosnamespacecephfs"},
    {"kubeconfig"},
    // Flags of klog, ceph-csi's log library. They are ignored too.
    {"v", Kind::number},
    {"vmodule"},
    {"logtostderr", Kind::boolean},
    {"alsologtostderr", Kind::boolean},
    {"stderrthreshold"},
    {"legacy_stderr_threshold_behavior", Kind::boolean},
    {"log_dir"},
    {"log_file"},
    {"log_file_max_size", Kind::number},
    {"log_backtrace_at"},
    {"add_dir_header", Kind::boolean},
    {"skip_headers", Kind::boolean},
    {"skip_log_headers", Kind::boolean},
    {"one_output", Kind::boolean},
});

}  // namespace

std::span<const Flag> flags() { return kTable; }

}  // namespace corbd::cli
