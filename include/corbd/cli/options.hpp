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

#include "corbd/agent/options.hpp"
#include "corbd/core/result.hpp"
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
struct Run : agent::Options {};
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
