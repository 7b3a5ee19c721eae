// The command line of `corbd run` and the other subcommands.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
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

/// Exit code for a command line that is not understood (EX_USAGE of sysexits.h). No answer has this code.
inline constexpr int kWrongUsage = 64;

/// ceph-csi's names for the client that serves a volume: the kernel's own client, or this agent over NBD.
inline constexpr std::array<std::string_view, 2> kMounters{"rbd", "rbd-nbd"};

/// Detail of each volume's I/O in /metrics.
inline constexpr std::array<std::string_view, 3> kVolumeMetrics{"none", "counters", "latency"};

/// `corbd run`. Flags that ceph-csi has, too, have ceph-csi's name.
struct Run : agent::Options {};
/// `cephcsi --type=liveness`: reports over HTTP whether an agent answers.
struct Liveness {
  std::string endpoint, address, path;
  std::uint16_t port = 0;
  std::chrono::milliseconds poll{}, timeout{};
};
/// `corbd helper`: the agent's own child, on file descriptor 3.
struct Helper {};
/// The command has printed and done everything already.
struct Exit {
  int code = 0;
};
/// A subcommand that calls an agent, with its options.
struct Call {
  /// Answers go to stdout, problems to stderr. Exit code: 0; 1 when the agent refused or could not; 3 when no agent
  /// answers on the admin socket. `corbd status` says 0 OK, 1 warning, 2 critical (docs/serving.md#exit-codes).
  std::function<int()> run;
};

using Command = std::variant<Run, Liveness, Helper, Call, doctor::Options, migration::Options, mounting::Options, Exit>;

/// Fills in values that were not given and follow from the rest; with --standalone also from the host's name.
void complete(Run& run);

/// Prints help, version, failpoints and errors itself. `version` is what --version prints. Under the name cephcsi, and
/// without a subcommand, the program takes ceph-csi's own command line.
Command parse(int argc, char** argv, const std::string& version);

/// Serves until a signal ends the process. Exit code: 1 when the port is not available.
int watch_liveness(const Liveness& watch);

}  // namespace corbd::cli
