#include "flags.hpp"

#include <array>

namespace corbd::cli {
namespace {

using Kind = Flag::Kind;

constexpr auto kTable = std::to_array<Flag>({
    // Of both.
    {"nodeid", Kind::text, &Run::nodeid, "Name of this node, as the orchestrator knows it", "NODE_ID"},
    {"endpoint", Kind::text, &Run::endpoint, "CSI socket, unix:///path", "CSI_ENDPOINT"},
    {"csi-addons-endpoint", Kind::text, &Run::addons_endpoint, "CSI-Addons socket, unix:///path [none]",
     "CSI_ADDONS_ENDPOINT"},
    {"drivername", Kind::text, &Run::drivername, "CSI driver name", "DRIVER_NAME"},
    {"pluginpath", Kind::text, &Run::pluginpath, "Folder of the plugins"},
    {"metricsport", Kind::number, &Run::metricsport, "HTTP port of metrics, /healthz and /readyz; 0: none"},
    {"metricspath", Kind::text, &Run::metricspath, "Path of the metrics"},
    {"enable-fencing", Kind::boolean, &Run::fencing,
     "Note this node's client address in its images, for ceph-csi's controller"},
    {"domainlabels", Kind::text, &Run::domainlabels,
     "Labels of the node that are its topology domains, comma separated"},
    {"enable-read-affinity", Kind::boolean, &Run::read_affinity,
     "Read from the nearest OSD, where config.json enables it without labels of its own"},
    {"crush-location-labels", Kind::text, &Run::crush_labels,
     "Labels of the node that say where it is, comma separated"},
    // Ours.
    {"default-mounter", Kind::text, &Run::default_mounter,
     "Who serves a volume whose attributes name no mounter: rbd (the kernel) or rbd-nbd (this agent)"},
    {"crush-location", Kind::text, &Run::crush_location,
     "Where this node is in the CRUSH map, instead of by its labels: host:node-1|zone:z1"},
    {"topology", Kind::text, &Run::topology, "Those labels given by hand: name=value,..."},
    {"kubelet-dir", Kind::text, &Run::kubelet_dir, "Every staging and target path must lie below it"},
    {"register", Kind::boolean, &Run::registers,
     "Tell kubelet of this driver, as node-driver-registrar does [where <kubelet-dir>/plugins_registry is]"},
    {"kubelet-registration-path", Kind::text, &Run::endpoint_on_host,
     "Path of the CSI socket as kubelet sees it on the host [that of --endpoint]"},
    {"state-dir", Kind::text, &Run::state_dir, "Records; on a disk [<pluginpath>/<drivername>/corbd]"},
    {"runtime-dir", Kind::text, &Run::runtime_dir, "Ceph keys of staged volumes, and the admin socket; must be tmpfs"},
    {"config-dir", Kind::text, &Run::config_dir, "Folder of ceph-csi's config.json"},
    {"kms-config-dir", Kind::text, &Run::kms_config_dir, "Folder of ceph-csi's config.json of key management systems"},
    {"metricsip", Kind::text, &Run::metricsip, "Address of the HTTP port", "POD_IP"},
    {"failpoint", Kind::text, &Run::failpoints, "NAME=kill|stop|error|hang[@N], for tests"},
    {"heal-without-proof", Kind::boolean, &Run::heal_without_proof, "Gone: see `corbd heal ID --without-proof`"},
    {"heal-at-once", Kind::number, &Run::heal_at_once, "Volumes that are healed at the same time", nullptr, 1, 1024},
    {"unstage-orphans", Kind::boolean, &Run::unstage_orphans,
     "Unstage what kubelet has forgotten: staged, used by no pod, and not attached to this node for ten minutes"},
    {"watch-all-volumeattachments", Kind::boolean, &Run::watch_all_attachments,
     "Watch the whole cluster's, where this node's are selected if the server can, instead of one while its volume "
     "waits for it"},
    {"shutdown-grace", Kind::number, &Run::shutdown_grace_s,
     "Seconds that used devices are still served while the node shuts down; then they answer with I/O errors", nullptr,
     0, 86400},
    {"volume-health", Kind::boolean, &Run::volume_health, "Serve NodeGetVolumeHealth, alpha in CSI 1.13, too"},
    {"allow-core-dumps", Kind::boolean, &Run::allow_core_dumps,
     "Leave a core dump when the agent crashes; it has the Ceph keys and passphrases in it"},
    {"verbose", Kind::boolean, &Run::verbose, "Log every step"},
    // ceph-csi's flags with a meaning only in its own command line: cephcsi.cpp.
    {"type"},
    {"nodeserver", Kind::boolean},
    {"controllerserver", Kind::boolean},
    {"version", Kind::boolean},
    {"polltime", Kind::duration},
    {"timeout", Kind::duration},
    // ceph-csi's flags without a meaning here.
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
    // klog's.
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
