// The parts of next(). Each takes the state in which the last action was requested.
#pragma once

#include <chrono>
#include <utility>

#include "corbd/lifecycle/lifecycle.hpp"

namespace corbd::lifecycle {

/// A next agent that was ready before answers at once.
inline constexpr std::chrono::seconds kNextAnswersWithin{5};

/// Requests that action.
inline Transition to(State state, const Action& action) {
  state.doing = action;
  return {std::move(state), action};
}
/// Requests an action beside the one under way.
inline Transition beside(State state, const BesideAction& action = {}) { return {std::move(state), action}; }
inline Transition refuse(State state) { return to(std::move(state), LastAction{.what = Last::refuse, .code = 1}); }

Transition begin(State state, const Begun& begun);
Transition links_gone(State state, bool in_reserve);
Transition wait_done(State state, Waiting doing, errc code);
Transition preopen(State state);
Transition take_over_heard(State state, handover::PeerMessage::What word);
Transition take_over_done(State state, TakingOver doing, errc code);
Transition serve_on(State state);
Transition serve_done(State state, Serving doing, errc code);
Transition woken(State state, const Woken& woken);
Transition next_answered(State state, const Answered& answered);
Transition hand_over_done(State state, HandingOver doing, errc code);
Transition leave(State state);
Transition hand_over(State state);
Transition leave_done(State state, Leaving doing);

}  // namespace corbd::lifecycle
