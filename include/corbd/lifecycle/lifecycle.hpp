// The life of an agent's process, as values: what it does next, and when it does so for another agent or lets one take
// over. The agent room carries the actions out, one after the other; so does the simulator.
#pragma once

#include <cstddef>
#include <variant>

#include "corbd/core/result.hpp"
#include "corbd/core/time.hpp"
#include "corbd/handover/values.hpp"
#include "corbd/lifecycle/leaving.hpp"

namespace corbd::lifecycle {

enum class Phase {
  waiting,       ///< for the lock of the state directory, or for the answer of the present agent
  in_reserve,    ///< this pod handed over, and begins again when the agent that serves ends or calls it
  taking_over,   ///< beside the agent that serves
  serving,       ///< it may have been told to end
  handing_over,  ///< once the next agent has the records, nothing leads back
  leaving,
  ended
};

struct Settings {
  bool handover = false;    ///< it asks the agent that serves
  bool in_pod = false;      ///< kubelet starts its container again, with the same arguments
  duration restart_wait{};  ///< an agent that ended beside this one may have a keeper that starts it within this
  duration leave_grace{};   ///< for which it waits for the next agent when it is told to end
  bool operator==(const Settings&) const = default;
  /// After it has handed over.
  bool goes_into_reserve() const { return handover && in_pod; }
};

enum class Do {
  none,
  // Waiting. Done says how it ended.
  lock,             ///< after `pause`: takes the lock of the state directory. in_use: somebody has it
  ask,              ///< after `pause`: asks the agent that serves. not_found: there is none
  let_links_go,     ///< ends the keeper's links, because no agent continues them. Then LinksGone
  wait_in_reserve,  ///< until nobody has had the lock for `within`, and locks it. cancelled: this pod is called
  begin_alone,      ///< serves callers soon, and reads the records
  // Taking over.
  preopen,       ///< connects to the clusters, and opens images once
  hear,          ///< the next message of the predecessor. Heard, or not_found: it ended; timed_out: it is silent
  say_ready,     ///< with the images that it could not open
  take_lock,     ///< the predecessor writes nothing more; reads the records
  load_records,  ///< the same without a predecessor
  say_loaded,
  take_listener,  ///< a socket on which the predecessor listened
  take_link,      ///< and serves it beside this
  finish,         ///< waits for what was taken; the predecessor has ended
  // Serving.
  serve,         ///< begins to answer callers and to heal
  wait,          ///< for Woken; longest for `within`
  call_reserve,  ///< the pod in reserve shall ask. not_found: none is there
  ask_next,      ///< whether it is ready. Then Answered
  refuse_next,   ///< it cannot serve what is served here
  announce,      ///< the next agent may soon be the only one that can serve. unavailable: it did not answer
  // Handing over and leaving.
  see_users_out,      ///< serves until nobody uses a device
  stop_new_work,      ///< commands to the kernel end, nothing is healed, no next agent is heard
  release_listeners,  ///< callers that come from now on wait for the next agent
  await_callers,      ///< who waits for an answer has `within`
  end_callers,        ///< the same, and then none is answered any more
  unregister,         ///< kubelet's registration ends
  quiesce,            ///< no step of a volume is under way. state_write: a record is still being written
  tell_successor,     ///< the supervisor hears who serves next
  note_reserve,       ///< this pod is in reserve
  hand_over_lock,     ///< until the next agent has the records. not_found: its process has ended
  serve_on,           ///< as before release_listeners: nothing was given, or nobody has it any more
  hand_over_listeners,
  hand_over_links,
  stop_volumes,   ///< answers what was read, and keeps the locks, `within`
  close_clients,  ///< if no volume is left
  hear_last_signals,
  // Last.
  refuse,  ///< because of the last error
  exit,    ///< with the code
  go_to_reserve,
  // Beside the action that is under way: what a signal, the node or a timer wants.
  heed_signal,  ///< drops a next agent with which nothing has begun `within`; `first`: looks whether the node stops
  drop_next     ///< an agent that asks, and with which nothing has begun
};

struct Action {
  Do what = Do::none;
  duration within{};
  duration pause{};
  bool first = false;         ///< of its kind
  bool say = false;           ///< worth a line in the log
  bool listeners_go = false;  ///< first the keeper ends its listening sockets: another agent needs their paths
  int code = 0;
  bool operator==(const Action&) const = default;
};

/// The process has begun. `inherits_links`: its keeper has links of an agent that died. `restarted`: by its keeper.
struct Begun {
  bool inherits_links = false, restarted = false;
};
/// `in_reserve`: this pod is noted there.
struct LinksGone {
  bool in_reserve = false;
};
/// The last action has ended.
struct Done {
  errc code = errc::ok;
};
struct Heard {
  handover::Word::What what;
};
/// The next agent is ready, or is given up. `lost`: volumes that are served here, and that it could not serve.
/// `lost_here_too`: those of them that this agent could not serve again either, once it has let them go. `accepts`: an
/// operator told the next agent that these are no obstacle.
struct Answered {
  bool ready = false;
  std::size_t lost = 0, lost_here_too = 0;
  bool accepts = false;
};
struct Woken {
  time_point now;
  bool next_asks = false;
  std::size_t in_use = 0;  ///< devices that this agent serves and somebody uses
};
/// Any time.
struct Signalled {
  time_point now;
};
struct NodeSeen {
  bool stops = false;
};
/// heed_signal's time is over.
struct PatienceOver {};
using Event = std::variant<Begun, LinksGone, Done, Heard, Answered, Woken, Signalled, NodeSeen, PatienceOver>;

struct State {
  Settings settings = {};
  Phase phase = Phase::waiting;
  Do doing = Do::none;
  bool owns_state = false;  ///< it serves this node, or is about to: a signal does not end it at once
  bool for_links = false;   ///< waiting: the keeper has links of an agent that died
  bool asks = false;        ///< waiting: asks the agent that serves, before it takes the lock
  int tries = 0;            ///< to get the lock, or an answer
  bool has_lock = false, predecessor_ended = false;
  Told told = {.signals = 0};
  time_point told_at = {};
  bool said_it_waits = false, failed = false;
  bool operator==(const State&) const = default;
  bool told_to_end() const { return told.signals > 0; }
  /// It was told to end, and serves on until the next agent asks or its grace is over.
  bool waits_for_next() const { return told.grace > duration{} && told.node_stops && !*told.node_stops; }
};

/// Before its first event.
State start_of(const Settings& settings);

struct Transition {
  State state;
  Action action;
};
Transition next(State state, const Event& event);

}  // namespace corbd::lifecycle
