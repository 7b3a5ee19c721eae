// The command line: what `corbd run` and the other subcommands take.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace corbd::cli {

/// `corbd run`; names as ceph-csi's where it has one.
struct Run {
  std::string nodeid, endpoint = "unix:///tmp/csi.sock", drivername = "rbd.csi.ceph.com";
  std::string pluginpath = "/var/lib/kubelet/plugins", kubelet_dir = "/var/lib/kubelet";
  std::string state_dir;  ///< default <pluginpath>/<drivername>/corbd
  std::string runtime_dir = "/run/corbd", config_dir = "/etc/ceph-csi-config";
  std::string metricsip = "127.0.0.1", metricspath = "/metrics";
  std::uint16_t metricsport = 0;  ///< 0: no HTTP
  std::vector<std::string> failpoints;
  bool heal_without_proof = false;
  bool verbose = false;
};
/// `corbd helper`: the agent's own child, on file descriptor 3.
struct Helper {};
/// Everything is said and done already.
struct Exit {
  int code = 0;
};
/// `corbd csi METHOD`: one CSI call, for scripts and for looking at an agent by hand.
struct CsiCall {
  std::string method, endpoint, volume_id, staging_path, target, cluster_id, pool, user, key_file, fstype, mkfs_options;
  std::string mode = "SINGLE_NODE_MULTI_WRITER";
  std::vector<std::string> mount_flags;
  bool block = false, readonly = false;
  int timeout_s = 120;
};

/// `corbd doctor`: looks at the node; names as of `corbd run`.
struct Doctor {
  std::string endpoint, admin_endpoint, kubelet_dir, state_dir, runtime_dir, config_dir;
  std::string bundle;  ///< file to pack into; empty: none
  std::string output = "text";  ///< or "json"
};

using Command = std::variant<Run, Helper, CsiCall, Doctor, Exit>;

/// Prints help, version, failpoints and errors itself. `version`: what --version says.
Command parse(int argc, char** argv, const std::string& version);

/// Makes the call; prints {"code","message"} as one JSON line. Exit code: 0 for OK.
int call_csi(const CsiCall& call);

/// Prints what it found. Exit code: 0 ok, 1 warnings, 2 failures.
int diagnose(const Doctor& options, const std::string& version);

}  // namespace corbd::cli
