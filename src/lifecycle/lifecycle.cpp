#include "corbd/lifecycle/lifecycle.hpp"

#include <algorithm>

#include "corbd/core/overloaded.hpp"
#include "phases.hpp"

namespace corbd::lifecycle {
namespace {

// A next agent that asked before a signal may need a moment.
constexpr std::chrono::seconds kNextHurriesFor{5};

Transition done(State state, errc code) {
  switch (state.phase) {
    case Phase::waiting:
    case Phase::in_reserve:
      return wait_done(std::move(state), code);
    case Phase::taking_over:
      return take_over_done(std::move(state), code);
    case Phase::serving:
      return serve_done(std::move(state), code);
    case Phase::handing_over:
      return hand_over_done(std::move(state), code);
    case Phase::leaving:
      return leave_done(std::move(state));
    case Phase::ended:
      break;
  }
  return beside(std::move(state), {});
}

/// An agent that got nothing yet ends at once: its predecessor goes on.
Transition signalled(State state, time_point now) {
  if (!state.owns_state) return end_with(std::move(state), {.what = Do::exit, .say = true});
  const bool first = ++state.told.signals == 1;
  if (first) state.told_at = now;
  const auto patience = std::max<duration>(kNextHurriesFor, first ? state.told.grace : duration{});
  return beside(std::move(state), {.what = Do::heed_signal, .within = patience, .first = first});
}

Transition drop_next(State state) {
  const Do what = state.phase == Phase::handing_over ? Do::none : Do::drop_next;
  return beside(std::move(state), {.what = what});
}

Transition node_seen(State state, bool stops) {
  state.told.node_stops = stops;
  return stops ? drop_next(std::move(state)) : beside(std::move(state), {});
}

}  // namespace

State start_of(const Settings& settings) {
  State state{.settings = settings};
  // Only a DaemonSet's controller that puts a second pod on the node lets the next agent come meanwhile.
  if (settings.goes_into_reserve()) state.told.grace = settings.leave_grace;
  return state;
}

Transition next(State state, const Event& event) {
  if (state.phase == Phase::ended) return beside(std::move(state), {});
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
