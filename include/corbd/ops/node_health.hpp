// The health of the node: one pure function of typed facts. `corbd status`, /readyz, /healthz, the metrics and the
// Event on the Node show its verdict, and nothing else judges. So no two of them disagree.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/core/time.hpp"
#include "corbd/device/values.hpp"
#include "corbd/heal/heal_queue.hpp"
#include "corbd/volume/capacity.hpp"
#include "corbd/volume/status.hpp"

namespace corbd::ops {

/// From this lag of the control thread on, the agent does not count as alive.
inline constexpr std::chrono::seconds kTooLate{10};
/// A request that waits for longer is worth a warning, even while every volume is served.
inline constexpr std::chrono::seconds kStalled{10};

/// critical: something waits or fails until somebody acts. warning: it may pass by itself, or it matters only later.
enum class Verdict { ok, warning, critical };
std::string_view name(Verdict verdict);
Verdict verdict(volume::Health health);

/// A service that the agent asks now and then, and can do without.
struct Outsider {
  enum class State { unused, not_asked, answers, silent } state = State::not_asked;
  std::string text;  ///< why it is unused, or its last error
};

struct Registration {
  enum class State {
    unasked,     ///< a sidecar registers the driver, or there is no kubelet
    elsewhere,   ///< another program registers a driver by this name
    waits,       ///< kubelet has not accepted this driver yet
    registered,  ///< kubelet calls this driver
    refused      ///< kubelet said no
  } state = State::unasked;
  std::string text;  ///< the reason
};

struct ClusterFacts {
  std::uint32_t volumes = 0, unserved = 0;
  bool does_not_answer = false;     ///< its breaker is open, and not only because a pool is full
  duration oldest_request{};        ///< age of the oldest request of any volume that the cluster has not answered
  bool answers_some = false;        ///< a volume has requests under way, and none that waits for long
  std::uint32_t refused_again = 0;  ///< volumes with a Status::refused_again
  std::string why_refused;          ///< reason of one of them
  std::string node_fenced;          ///< why the cluster refuses every client of this node; empty: it does not
  std::string pool_full;            ///< why a volume without a server waits for room in a pool; empty: none does
};

/// A helper that does not return.
struct Hanging {
  std::string what;
  int pid = 0;
  duration since{};  ///< how long it hangs
};

/// The process that restarts this agent when it dies (docs/keeper.md).
struct KeeperFacts {
  bool deaf = false;  ///< it missed a message
  std::uint32_t deaths = 0;
  int signal = 0;            ///< signal of the last death
  duration since_last = {};  ///< time since the last death
  duration pause = {};       ///< between that death and this agent's start
};
/// Time after a death in which people are told of it. Nothing else would show it, because users noticed nothing.
inline constexpr std::chrono::hours kDeathIsNews{1};
/// A pause of this length shows that agents die again and again. It may not be over until one has lived for a while.
inline constexpr std::chrono::seconds kPauseOfALoop{1};
inline constexpr std::chrono::minutes kLoopIsOver{5};

/// The agent was told to end, and serves on until the next one asks.
struct ToldFacts {
  duration since{}, grace{};
};
/// The next pod's agent asks within some seconds.
inline constexpr std::chrono::seconds kNextComesWithin{15};

/// The port of the metrics, which another process may have. The agent retries it.
struct PortFacts {
  std::string refused;  ///< why it is not open; empty: it is, or none is wanted
  duration since{};     ///< how long it has been refused
};
/// The agent of a pod that leaves keeps the port a little longer.
inline constexpr std::chrono::seconds kPortIsFreeWithin{60};

/// An error means that the thing is missing. Every fact has a value that means "well".
struct NodeFacts {
  duration loop_lag{};                       ///< lag of the control thread
  std::optional<std::string> cordoned;       ///< since when `corbd drain` is in effect, as text
  result<> csi, state_dir;                   ///< csi: its socket answers; state_dir: it can be written
  std::map<device::Kind, result<>> drivers;  ///< whether the driver is loaded, for each kind that this agent serves
  Registration registration;                 ///< at kubelet
  Outsider api_server, system_bus;
  result<> own_node;          ///< not_found: the API server has no node of this agent's name
  std::string startup_taint;  ///< why the node still has its startup taint; empty: it has none
  volume::Capacity capacity;  ///< zero volumes: not known
  PortFacts metrics;
  std::optional<KeeperFacts> keeper;  ///< nothing: this agent has no keeper
  std::optional<ToldFacts> told_to_end;
  std::map<volume::Health, std::uint32_t> volumes;
  std::uint32_t caches_lost = 0;                    ///< volumes whose flushes fail (volume::Status::cache_lost)
  std::uint32_t kernel_refused = 0;                 ///< volumes whose kernel client is blocklisted (Status)
  std::map<std::string, ClusterFacts> clusters;     ///< by cluster ID; only clusters with a volume here
  std::map<device::Kind, std::uint32_t> unclaimed;  ///< devices that no record names
  std::vector<Hanging> hanging;                     ///< stuck helpers
};

/// Fills in `volumes`, `caches_lost`, `kernel_refused` and `clusters`.
void tally(NodeFacts& into, const std::vector<volume::Status>& all, const heal::HealQueue& queue);

/// A part of the node with its verdict.
struct Component {
  enum class Holds {
    nothing,
    serving,  ///< /readyz says no while it is critical: no new volume can be staged here
    living    ///< /healthz says no too: the agent cannot do anything
  };
  std::string name;  ///< "nbd", "cluster prod"
  Verdict verdict = Verdict::ok;
  std::string text;  ///< the finding; then the way out, if there is one
  Holds holds = Holds::nothing;
};

/// In the order in which people read them.
struct NodeHealth {
  std::vector<Component> components;
  Verdict verdict() const;  ///< the worst one
  bool ready() const;
  bool alive() const;
  /// Returns a sentence for each component that keeps the agent from serving.
  std::vector<std::string> not_ready() const;
};

/// A component that is not ready is at least a warning.
NodeHealth judge(const NodeFacts& facts);

/// Decides when people hear of it by an Event on the Node: once no volume could be staged here for a minute, or nobody
/// could read the metrics, and when that is over. Pure.
class Announcements {
 public:
  static constexpr std::chrono::seconds kAfter{60};
  std::vector<volume::Notice> step(const NodeFacts& facts, time_point now);

 private:
  struct Subject {
    std::optional<time_point> wrong_since;
    bool told = false;
    /// Whether there is news. `wrong`: the present state.
    bool step(bool wrong, time_point now);
  };
  Subject not_ready_, no_metrics_;
};

}  // namespace corbd::ops
