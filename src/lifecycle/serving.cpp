// The phase from the first answered call until the agent leaves or hands over.
#include "phases.hpp"

namespace corbd::lifecycle {
namespace {

// The next agent first connects to the clusters and opens images.
constexpr std::chrono::seconds kNextPreopensWithin{120};
constexpr std::chrono::milliseconds kDecideAgain{500};

Transition ask_next(State state) { return to(std::move(state), ServingAction{Serving::ask_next, kNextPreopensWithin}); }

Transition decide_leaving(State state) {
  switch (decide(state.told)) {
    case Decision::leave:
      return leave(std::move(state));
    case Decision::wait_for_users:
      return to(std::move(state), ServingAction{Serving::wait_for_users});
    case Decision::hand_over:
      return ask_next(std::move(state));
    case Decision::wait:
      break;
  }
  const bool say = state.told.node_stops && !std::exchange(state.said_it_waits, true);
  return to(std::move(state), ServingAction{Serving::wait, kDecideAgain, say});
}

}  // namespace

/// An agent that was told to end decides again at once.
Transition serve_on(State state) {
  const auto within = state.told_to_end() ? duration{} : duration::max();
  return to(std::move(state), ServingAction{Serving::wait, within});
}

/// This pod goes, and another one may be in reserve: a rollout is undone, or the node was booted in the middle of one.
/// The call counts once, and the pod may need some time to get ready.
Transition woken(State state, const Woken& woken) {
  if (!std::holds_alternative<ServingAction>(state.doing)) return beside(std::move(state));
  if (!state.told_to_end()) return woken.next_asks ? ask_next(std::move(state)) : serve_on(std::move(state));
  state.told.next_asks = woken.next_asks;
  state.told.in_use = woken.in_use;
  state.told.since = woken.now - state.told_at;
  if (state.waits_for_next() && !woken.next_asks) return to(std::move(state), ServingAction{Serving::call_reserve});
  return decide_leaving(std::move(state));
}

Transition serve_done(State state, Serving doing, errc code) {
  switch (doing) {
    case Serving::begin_alone:
      if (code == errc::ok) return to(std::move(state), ServingAction{Serving::serve});
      [[fallthrough]];
    case Serving::serve:
      // A signal may have come meanwhile.
      return code == errc::ok ? serve_on(std::move(state)) : refuse(std::move(state));
    case Serving::call_reserve:
      if (code == errc::ok) state.told.called = true;
      return decide_leaving(std::move(state));
    case Serving::announce:
      return code == errc::ok ? hand_over(std::move(state)) : serve_on(std::move(state));
    case Serving::wait_for_users:
      return leave(std::move(state));
    case Serving::wait:
    case Serving::ask_next:
    case Serving::refuse_next:
      break;
  }
  return serve_on(std::move(state));
}

/// Decides by the next agent's answer. It must be able to serve what this agent serves, because it may have another
/// configuration. A volume is better off here as long as this agent lives, so only an operator may give up one that
/// neither could serve again.
Transition next_answered(State state, const Answered& answered) {
  if (is(state.doing, HandingOver::ask_next))
    return hand_over_done(std::move(state), HandingOver::ask_next, answered.ready ? errc::ok : errc::unavailable);
  if (!answered.ready) return serve_on(std::move(state));
  const bool all_lost_here_too = answered.lost == answered.lost_here_too;
  if (answered.lost > 0 && !(answered.accepts && all_lost_here_too))
    return to(std::move(state), ServingAction{Serving::refuse_next});
  return to(std::move(state), ServingAction{Serving::announce, kNextAnswersWithin, answered.lost > 0});
}

}  // namespace corbd::lifecycle
