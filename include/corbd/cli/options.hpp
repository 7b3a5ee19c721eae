// The command line: what `corbd run` and the other subcommands take.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "corbd/doctor/doctor.hpp"
#include "corbd/migration/migration.hpp"
#include "corbd/mounting/mounting.hpp"

namespace corbd::cli {

/// Exit code of a command line that is not understood (EX_USAGE of sysexits.h): none of the codes that an answer has.
inline constexpr int kWrongUsage = 64;

/// ceph-csi's names for the client that serves a volume: the kernel's own client, or this agent over NBD.
inline constexpr std::array<std::string_view, 2> kMounters{"rbd", "rbd-nbd"};

/// What /metrics tells of each volume's I/O.
inline constexpr std::array<std::string_view, 3> kVolumeMetrics{"none", "counters", "latency"};

/// `corbd run`. Flags have ceph-csi's name where it has one.
struct Run {
  std::string nodeid, endpoint = "unix:///tmp/csi.sock", drivername = "rbd.csi.ceph.com";
  std::string pluginpath = "/var/lib/kubelet/plugins", kubelet_dir = "/var/lib/kubelet";
  std::string state_dir;  ///< default <pluginpath>/<drivername>/corbd
  std::string runtime_dir = "/run/corbd", config_dir = "/etc/ceph-csi-config";
  std::string kms_config_dir = "/etc/ceph-csi-encryption-kms-config";
  std::string metricsip = "127.0.0.1", metricspath = "/metrics";
  std::uint16_t metricsport = 0;            ///< 0: no HTTP
  std::string volume_metrics = "counters";  ///< one of kVolumeMetrics
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
  std::string default_mounter = "rbd-nbd";                ///< for volumes that name none: one of kMounters
  std::string mkfs_options, fsck_options, mount_options;  ///< "ext4:OPTIONS;xfs:OPTIONS"
  std::string crush_location;                             ///< "host:a|zone:b", instead of labels
  std::optional<bool> registers;  ///< kubelet is told of the driver; otherwise where its plugins_registry is
  std::string endpoint_on_host;   ///< path of the CSI socket; empty: that of `endpoint`
  bool standalone = false;        ///< without kubelet and API server; the callers are this host's own root
  std::string ceph_conf;          ///< names the cluster where there is no config.json; empty: none does
  bool handover = false;          ///< the devices of the agent that serves are taken over without a break
  std::string pod;                ///< UID of its pod, where a DaemonSet has a second one beside it; empty: no pod
  bool keeper = false;            ///< a parent process starts this agent again when it dies, with its links
  bool verbose = false;
};
/// `cephcsi --type=liveness`: reports over HTTP whether an agent answers.
struct Liveness {
  std::string endpoint, address, path;
  std::uint16_t port = 0;
  std::chrono::milliseconds poll{}, timeout{};
};
/// `corbd helper`: the agent's own child, on file descriptor 3.
struct Helper {};
/// Everything is printed and done already.
struct Exit {
  int code = 0;
};
/// `corbd csi METHOD`: makes one CSI call, for scripts and for people who inspect an agent.
struct CsiCall {
  std::string method, endpoint, volume_id, staging_path, target, cluster_id, pool, user, key_file, passphrase_file,
      fstype, mkfs_options;
  std::string mode = "SINGLE_NODE_MULTI_WRITER";
  std::vector<std::string> mount_flags;
  std::vector<std::string> attributes;  ///< "name=value"; they override those of a static volume
  bool block = false, readonly = false;
  std::int64_t bytes = 0;
  bool wait = false;  ///< for an agent that does not answer yet
  int timeout_s = 120;
};

/// The subcommands that ask a running agent on its admin socket: `corbd status`, `volumes`, `volume`, `heal`, `fail`,
/// `drain`, `log-level`, `events`, `alive`, `top`, `handover`.
struct Admin {
  enum class What { none, status, volumes, volume, heal, fail, drain, log_level, events, alive, top, handover };
  What what = What::none;
  std::string runtime_dir;  ///< empty: found (cli/admin_socket.hpp)
  std::string volume_id;
  std::string output;         ///< table, wide, text or json; empty: the first that the subcommand has
  std::string level;          ///< of log-level
  std::string sort = "iops";  ///< of top: the column that comes first
  int interval_s = 2;         ///< of top: between two looks
  bool once = false;          ///< of top: one table, also on a terminal
  bool ready = false;         ///< of alive: whether it serves, too
  std::string pod;            ///< of alive --ready: whose agent must answer, by its UID; empty: any
  bool follow = false, yes_really = false, adopt = false, without_proof = false, undo = false;
  int timeout_s = 0;  ///< 0: 120 for heal and fail, an hour for drain, 280 for handover, 10 for the others
};

/// The subcommands about other clients of a cluster: `corbd holders`, `take`, `fence add`, `fence rm`, `fence ls`.
struct Fencing {
  enum class What { none, holders, take, add, remove, list };
  What what = What::none;
  std::string runtime_dir;  ///< empty: found (cli/admin_socket.hpp)
  std::string image;        ///< volume ID, or POOL/[NAMESPACE/]IMAGE
  std::string cluster_id, user, key_file;
  std::vector<std::string> blocks;  ///< as CIDR
  std::string duration;             ///< "24h"; empty: five years
  bool force = false, yes_really = false;
  std::string output = "text";  ///< or "json"
  int timeout_s = 60;
};

using Command = std::variant<Run, Liveness, Helper, CsiCall, Admin, Fencing, doctor::Options, migration::Options,
                             mounting::Options, Exit>;

/// Fills in what was not given and follows from the rest, with --standalone also from the host's name.
void complete(Run& run);

/// Prints help, version, failpoints and errors itself. `version` is what --version prints. Under the name cephcsi, and
/// without a subcommand, the program takes ceph-csi's own command line.
Command parse(int argc, char** argv, const std::string& version);

/// Serves until a signal ends the process. Exit code: 1 when the port is not available.
int watch_liveness(const Liveness& watch);

/// Makes the call; prints {"code","message"} as one JSON line. Exit code: 0 for OK.
int call_csi(const CsiCall& call);

/// Asks the agent. Answers go to stdout, problems to stderr. Exit code: 0; 1 when the agent refused or could not; 3
/// when no agent answers on the socket. `corbd status` says 0 OK, 1 warning, 2 critical (docs/serving.md#exit-codes).
int call_admin(const Admin& ask);
/// The same about other clients.
int call_fencing(const Fencing& ask);

}  // namespace corbd::cli
