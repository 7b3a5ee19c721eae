// The life of an agent's process as values: its next action, and when it acts for another agent or lets one take over.
// The agent room carries the actions out, one after the other; so does the simulator.
#pragma once

#include <cstddef>
#include <type_traits>
#include <variant>

#include "corbd/core/result.hpp"
#include "corbd/core/time.hpp"
#include "corbd/handover/values.hpp"
#include "corbd/lifecycle/leaving.hpp"

namespace corbd::lifecycle {

struct Settings {
  bool handover = false;    ///< it asks the serving agent
  bool in_pod = false;      ///< kubelet restarts its container with the same arguments
  duration restart_wait{};  ///< an agent that ended beside this one may have a keeper that restarts it within this time
  duration leave_grace{};   ///< time that it waits for the next agent when it is told to end
  /// Whether it goes into reserve after it has handed over.
  bool goes_into_reserve() const { return handover && in_pod; }
};

// --- Actions ------------------------------------------------------------------------------------
//
// One enum for each phase of the life, and each has one switch that carries it out: an action that nobody carries out
// does not compile. Done says how an action ended.

/// Actions beside the one under way, for a signal, the node or a timer.
enum class Beside {
  nothing,
  heed_signal,  ///< drops a next agent with which nothing has begun `within`
  drop_next     ///< an agent that asks, and with which nothing has begun
};
struct BesideAction {
  Beside what = Beside::nothing;
  duration within{};
  bool first = false;  ///< the first signal: looks whether the node stops
};

/// Actions until it has the lock of the state directory, or the serving agent's answer.
enum class Waiting {
  lock,            ///< takes the lock of the state directory. in_use: somebody has it
  ask,             ///< asks the serving agent. not_found: there is none
  let_links_go,    ///< ends the keeper's links, because no agent continues them. Then LinksGone
  wait_in_reserve  ///< until nobody has had the lock for `within`, and locks it. cancelled: this pod is called
};
struct WaitingAction {
  Waiting what;
  duration within{};
  duration pause{};           ///< passes before the action
  bool say = false;           ///< logs that it waits
  bool listeners_go = false;  ///< the keeper first ends its listening sockets: another agent needs their paths
};

/// Actions beside the serving agent.
enum class TakingOver {
  preopen,       ///< connects to the clusters, and opens images once
  hear,          ///< waits for the predecessor's next message. Heard, or not_found: it ended; timed_out: it is silent
  say_ready,     ///< lists the images that it could not open
  take_lock,     ///< the predecessor writes nothing more; reads the records
  lock,          ///< after `pause`: takes the lock of the state directory. in_use: somebody has it
  load_records,  ///< the same as take_lock without a predecessor
  say_loaded,
  take_listener,  ///< takes a socket on which the predecessor listened
  take_link,      ///< takes a link, and serves it beside the next action
  finish          ///< waits for all taken links; the predecessor has ended
};
struct TakingOverAction {
  TakingOver what;
  duration within{};
  duration pause{};
  bool say = false;  ///< logs that the predecessor is silent
};

/// Actions of an agent that serves. It may have been told to end.
enum class Serving {
  begin_alone,    ///< serves callers soon, and reads the records
  serve,          ///< begins to answer callers and to heal
  wait,           ///< waits for Woken, at most `within`
  call_reserve,   ///< asks the pod in reserve to ask for the devices. not_found: none is there
  ask_next,       ///< asks whether it is ready. Then Answered
  refuse_next,    ///< the next agent cannot serve what is served here
  announce,       ///< tells the next agent that it may be the only one soon. unavailable: it did not answer
  wait_for_users  ///< serves until nobody uses a device
};
struct ServingAction {
  Serving what;
  duration within{};
  bool say = false;  ///< logs why it serves on, or what it gives up
};

/// Actions of a handover. Their order is the table of src/lifecycle/ending.cpp.
enum class HandingOver {
  release_listeners,  ///< new callers wait for the next agent from now on
  await_callers,      ///< callers that wait for an answer have `within`
  quiesce,            ///< waits until no step of a volume is under way. state_write: a record is still being written
  ask_next,           ///< asks whether it is still ready
  hand_over_lock,     ///< waits until the next agent has the records. not_found: its process has ended
  serve_on,           ///< reverts to before release_listeners: nothing was handed over, or nobody has it any more
  stop_new_work,      ///< ends commands to the kernel, healing, and the wait for a next agent
  end_callers,        ///< as await_callers, and then no caller is answered any more
  unregister,         ///< ends kubelet's registration
  tell_successor,     ///< tells the supervisor who serves next
  note_reserve,       ///< notes that this pod is in reserve
  hand_over_listeners,
  hand_over_links,
  stop_volumes,  ///< answers the requests that were read, and keeps the locks, `within`
  hear_last_signals
};
struct HandingOverAction {
  HandingOver what;
  duration within{};
};

/// Actions of an agent that leaves its devices to the next start: those of a handover in another order.
enum class Leaving {
  stop_new_work,
  stop_volumes,
  end_callers,
  close_clients,  ///< only if no volume is left
  unregister
};
struct LeavingAction {
  Leaving what;
  duration within{};
};

/// Last actions.
enum class Last {
  refuse,  ///< reports the last error
  exit,    ///< ends with the code
  go_to_reserve
};
struct LastAction {
  Last what;
  int code = 0;
  bool say = false;  ///< logs that it left
};

/// Its alternative is the phase in which the agent is.
using Action = std::variant<BesideAction, WaitingAction, TakingOverAction, ServingAction, HandingOverAction,
                            LeavingAction, LastAction>;

/// Whether that is the action.
template <class What>
bool is(const Action& action, What what) {
  return std::visit(
      [&](const auto& one) {
        if constexpr (std::is_same_v<decltype(one.what), What>) return one.what == what;
        return false;
      },
      action);
}

// --- Events -------------------------------------------------------------------------------------

/// The process has begun. `inherits_links`: its keeper has links of an agent that died. `restarted`: by its keeper.
struct Begun {
  bool inherits_links = false, restarted = false;
};
/// The keeper's links have ended. `in_reserve`: this pod is noted there.
struct LinksGone {
  bool in_reserve = false;
};
/// The last action has ended.
struct Done {
  errc code = errc::ok;
};
/// The predecessor's message has come.
struct Heard {
  handover::PeerMessage::What what;
};
/// The next agent is ready, or is given up. `lost`: volumes that are served here, and that it could not serve.
/// `lost_here_too`: those of them that this agent could not serve again either, once it has released them. `accepts`:
/// an operator told the next agent that these are no obstacle.
struct Answered {
  bool ready = false;
  std::size_t lost = 0, lost_here_too = 0;
  bool accepts = false;
};
/// The serving agent's wait is over: something happened, or its time has passed.
struct Woken {
  time_point now;
  bool next_asks = false;
  std::size_t in_use = 0;  ///< number of devices that this agent serves and somebody uses
};
/// Events that may come at any time.
struct Signalled {
  time_point now;
};
/// The answer to the question whether the node shuts down.
struct NodeSeen {
  bool stops = false;
};
/// The time of heed_signal is over.
struct PatienceOver {};
using Event = std::variant<Begun, LinksGone, Done, Heard, Answered, Woken, Signalled, NodeSeen, PatienceOver>;

struct State {
  Settings settings = {};
  Action doing = {};
  bool owns_state = false;  ///< it serves this node, or is about to: a signal does not end it at once
  bool for_links = false;   ///< while waiting: the keeper has links of an agent that died
  bool asks = false;        ///< while waiting: asks the serving agent before it takes the lock
  int tries = 0;            ///< tries so far for the lock, or for an answer
  bool has_lock = false, predecessor_ended = false;
  Told told = {.signals = 0};
  time_point told_at = {};
  bool said_it_waits = false, failed = false;
  bool told_to_end() const { return told.signals > 0; }
  /// Whether it was told to end, and serves on until the next agent asks or its grace is over.
  bool waits_for_next() const { return told.grace > duration{} && told.node_stops && !*told.node_stops; }
};

/// Returns the state before the first event.
State start_of(const Settings& settings);

/// The next state, and the action that it asks for.
struct Transition {
  State state;
  Action action;
};
Transition next(State state, const Event& event);

}  // namespace corbd::lifecycle
