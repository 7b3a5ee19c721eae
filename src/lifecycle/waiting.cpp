// The phase until this agent may begin: alone, or beside the serving one.
#include "phases.hpp"

namespace corbd::lifecycle {
namespace {

// A helper that the dead agent forked has the lock until it executes its own program. An agent that was handing over
// has it until it ends, which takes 6 s at most.
constexpr int kTriesForLinks = 120;
constexpr std::chrono::milliseconds kPauseForLinks{50};
// An agent that ended just now holds its lock a moment longer. An agent that started beside this one has the lock
// before it can be asked.
constexpr int kTries = 100;
// Each refusal is a line in the serving agent's log.
constexpr std::chrono::milliseconds kPause{100}, kPauseWhenRefused{5000};
// An agent that has the lock for longer serves, and waits for the paths (agent/agent.cpp). A helper, or a pod in
// reserve that tests the lock, has it only briefly.
constexpr std::chrono::milliseconds kListenersStay{500};

Transition try_again(State state, duration pause, bool say, bool listeners_go) {
  const auto what = state.asks ? Waiting::ask : Waiting::lock;
  return to(std::move(state), WaitingAction{.what = what, .pause = pause, .say = say, .listeners_go = listeners_go});
}

Transition begin_alone(State state) {
  state.owns_state = true;
  return to(std::move(state), ServingAction{Serving::begin_alone});
}

/// Whether to wait for the serving agent. In a pod that agent may be deleted any time, or be handing over to another
/// pod and hear nobody else. kubelet would let a container that ended wait for minutes.
bool may_wait(const State& state, errc why) {
  if (!state.settings.handover) return false;
  if (!state.settings.in_pod) return why == errc::in_use && state.tries < kTries;
  return why == errc::in_use || why == errc::failed_precondition || why == errc::timed_out;
}

Transition refused(State state, errc why) {
  const int tries = ++state.tries;
  if (!may_wait(state, why)) return refuse(std::move(state));
  const bool in_use = why == errc::in_use;
  // An agent that refuses serves.
  const bool listeners_go = !in_use || tries * kPause >= kListenersStay;
  return try_again(std::move(state), in_use ? kPause : kPauseWhenRefused, tries == (in_use ? kTries : 1), listeners_go);
}

/// With the lock, this agent alone continues the volumes of the dead agent whose links a keeper has. Another agent with
/// the lock heals them, which needs dead links.
Transition lock_for_links(State state, errc code) {
  if (code == errc::ok) return begin_alone(std::move(state));
  if (code == errc::in_use && ++state.tries < kTriesForLinks) {
    const bool listeners_go = state.tries * kPauseForLinks >= kListenersStay;
    return to(std::move(state),
              WaitingAction{.what = Waiting::lock, .pause = kPauseForLinks, .listeners_go = listeners_go});
  }
  return to(std::move(state), WaitingAction{Waiting::let_links_go});
}

}  // namespace

/// An agent that died during its handover must not ask for the devices back: it is still the old program. In a pod the
/// file in-reserve prevents that.
Transition begin(State state, const Begun& begun) {
  state.asks = state.settings.handover && (!begun.restarted || state.settings.in_pod);
  state.for_links = begun.inherits_links;
  return to(std::move(state), WaitingAction{begun.inherits_links ? Waiting::lock : Waiting::let_links_go});
}

Transition links_gone(State state, bool in_reserve) {
  state.for_links = false;
  state.tries = 0;
  if (!in_reserve || !state.settings.goes_into_reserve()) return try_again(std::move(state), {}, false, false);
  const auto free_for = state.settings.restart_wait;
  return to(std::move(state), WaitingAction{Waiting::wait_in_reserve, free_for});
}

Transition wait_done(State state, Waiting doing, errc code) {
  if (state.for_links) return lock_for_links(std::move(state), code);
  if (doing == Waiting::wait_in_reserve && code == errc::cancelled)
    return try_again(std::move(state), {}, false, false);
  if (doing == Waiting::wait_in_reserve && code != errc::ok) return refuse(std::move(state));
  if (doing == Waiting::ask && code == errc::ok) return preopen(std::move(state));
  if (doing == Waiting::ask && code == errc::not_found) return to(std::move(state), WaitingAction{Waiting::lock});
  if (code != errc::ok) return refused(std::move(state), code);
  return begin_alone(std::move(state));
}

}  // namespace corbd::lifecycle
