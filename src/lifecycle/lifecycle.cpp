#include "corbd/lifecycle/lifecycle.hpp"

#include <algorithm>

#include "corbd/core/overloaded.hpp"
#include "phases.hpp"

namespace corbd::lifecycle {
namespace {

// A next agent that asked before a signal may need a moment.
constexpr std::chrono::seconds kNextHurriesFor{5};

Transition done(State state, errc code) {
  const Action action = state.doing;
  return std::visit(Overloaded{
                        [&](const BesideAction&) { return beside(std::move(state)); },
                        [&](const WaitingAction& did) { return wait_done(std::move(state), did.what, code); },
                        [&](const TakingOverAction& did) { return take_over_done(std::move(state), did.what, code); },
                        [&](const ServingAction& did) { return serve_done(std::move(state), did.what, code); },
                        [&](const HandingOverAction& did) { return hand_over_done(std::move(state), did.what, code); },
                        [&](const LeavingAction& did) { return leave_done(std::move(state), did.what); },
                        [&](const LastAction&) { return beside(std::move(state)); },
                    },
                    action);
}

/// An agent that got nothing yet ends at once: its predecessor goes on.
Transition signalled(State state, time_point now) {
  if (!state.owns_state) return to(std::move(state), LastAction{.what = Last::exit, .say = true});
  const bool first = ++state.told.signals == 1;
  if (first) state.told_at = now;
  const auto patience = std::max<duration>(kNextHurriesFor, first ? state.told.grace : duration{});
  return beside(std::move(state), {Beside::heed_signal, patience, first});
}

Transition drop_next(State state) {
  const bool gives = std::holds_alternative<HandingOverAction>(state.doing);
  return beside(std::move(state), {gives ? Beside::nothing : Beside::drop_next});
}

Transition node_seen(State state, bool stops) {
  state.told.node_stops = stops;
  return stops ? drop_next(std::move(state)) : beside(std::move(state));
}

}  // namespace

State start_of(const Settings& settings) {
  State state{.settings = settings};
  // Only a DaemonSet's controller that puts a second pod on the node lets the next agent come meanwhile.
  if (settings.goes_into_reserve()) state.told.grace = settings.leave_grace;
  return state;
}

Transition next(State state, const Event& event) {
  if (std::holds_alternative<LastAction>(state.doing)) return beside(std::move(state));
  return std::visit(Overloaded{[&](const Begun& begun) { return begin(std::move(state), begun); },
                               [&](const LinksGone& gone) { return links_gone(std::move(state), gone.in_reserve); },
                               [&](const Done& ended) { return done(std::move(state), ended.code); },
                               [&](const Heard& heard) { return take_over_heard(std::move(state), heard.what); },
                               [&](const Answered& answered) { return next_answered(std::move(state), answered); },
                               [&](const Woken& facts) { return woken(std::move(state), facts); },
                               [&](const Signalled& told) { return signalled(std::move(state), told.now); },
                               [&](const NodeSeen& seen) { return node_seen(std::move(state), seen.stops); },
                               [&](const PatienceOver&) { return drop_next(std::move(state)); }},
                    event);
}

}  // namespace corbd::lifecycle
