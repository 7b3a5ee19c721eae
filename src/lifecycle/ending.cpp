// The end of an agent: it hands its devices to the next agent, or leaves them to the next start.
#include <algorithm>
#include <array>

#include "corbd/core/expect.hpp"
#include "phases.hpp"

namespace corbd::lifecycle {
namespace {

// Sessions and operations come first. Neither calls under way nor mere readers may take their time.
constexpr std::chrono::milliseconds kVolumesStopWithin{1600}, kCallsEndWithin{200};
// The next agent waits for nothing else meanwhile.
constexpr std::chrono::seconds kCallsEndForNextWithin{2};

/// A step of the handover.
struct Step {
  HandingOverAction action;
  enum class If { nothing_failed, goes_into_reserve, failed, always } taken = If::nothing_failed;
  enum class Fails { no_matter, serve_on, serve_on_if_next_ended, cannot_serve_on } if_it_fails = Fails::no_matter;
};
using If = Step::If;
using Fails = Step::Fails;

// A planned restart, from top to bottom: the next agent waits. Callers end first, while devices are served. Then each
// device stands still until the next agent serves it, a few at a time. What cannot be undone begins once the next agent
// has the records. After a failure then, the process must be able to end, and what is under way is answered. A living
// agent with the lock may go on with it, so only its end proves that nobody else serves.
constexpr std::array kHandOver{
    Step{{HandingOver::release_listeners}},
    Step{{HandingOver::await_callers, kCallsEndForNextWithin}},
    Step{{HandingOver::quiesce}, If::nothing_failed, Fails::serve_on},
    Step{{HandingOver::ask_next, kNextAnswersWithin}, If::nothing_failed, Fails::serve_on},
    Step{{HandingOver::hand_over_lock}, If::nothing_failed, Fails::serve_on_if_next_ended},
    Step{{HandingOver::stop_new_work}, If::always},
    Step{{HandingOver::end_callers, kCallsEndWithin}, If::always},
    Step{{HandingOver::unregister}},
    Step{{HandingOver::tell_successor}},
    Step{{HandingOver::note_reserve}, If::goes_into_reserve},
    Step{{HandingOver::hand_over_listeners}, If::nothing_failed, Fails::cannot_serve_on},
    Step{{HandingOver::stop_volumes, kVolumesStopWithin}, If::failed},
    Step{{HandingOver::hand_over_links}, If::nothing_failed, Fails::cannot_serve_on},
    Step{{HandingOver::hear_last_signals}, If::always},
};

// Another order than a handover's: metrics and healing stop first, then volumes, then callers that wait for an answer,
// and the registration last.
constexpr std::array kLeave{
    LeavingAction{Leaving::stop_new_work},
    LeavingAction{Leaving::stop_volumes, kVolumesStopWithin},
    LeavingAction{Leaving::end_callers, kCallsEndWithin},
    LeavingAction{Leaving::close_clients},
    LeavingAction{Leaving::unregister},
};

bool goes_into_reserve(const State& state) { return !state.told_to_end() && state.settings.goes_into_reserve(); }

bool takes(const State& state, If taken) {
  switch (taken) {
    case If::nothing_failed:
      return !state.failed;
    case If::goes_into_reserve:
      return !state.failed && goes_into_reserve(state);
    case If::failed:
      return state.failed;
    case If::always:
      break;
  }
  return true;
}

/// A later signal ends the process.
Transition gone(State state) {
  if (state.failed) return to(std::move(state), LastAction{Last::exit, 1});
  const auto what = goes_into_reserve(state) ? Last::go_to_reserve : Last::exit;
  return to(std::move(state), LastAction{what});
}

}  // namespace

Transition hand_over(State state) { return to(std::move(state), kHandOver.front().action); }

Transition hand_over_done(State state, HandingOver doing, errc code) {
  // Without its listening sockets, callers would not find the next agent.
  if (doing == HandingOver::serve_on) return code == errc::ok ? serve_on(std::move(state)) : refuse(std::move(state));
  const auto* step = std::ranges::find(kHandOver, doing, [](const Step& one) { return one.action.what; });
  expect(step != kHandOver.end(), "a handover goes on from one of its steps");
  if (code != errc::ok) {
    const bool next_ended = step->if_it_fails == Fails::serve_on_if_next_ended && code == errc::not_found;
    if (step->if_it_fails == Fails::serve_on || next_ended)
      return to(std::move(state), HandingOverAction{HandingOver::serve_on});
    if (step->if_it_fails != Fails::no_matter) state.failed = true;
  }
  step = std::find_if(step + 1, kHandOver.end(), [&](const Step& one) { return takes(state, one.taken); });
  return step == kHandOver.end() ? gone(std::move(state)) : to(std::move(state), step->action);
}

Transition leave(State state) { return to(std::move(state), kLeave.front()); }

Transition leave_done(State state, Leaving doing) {
  const auto* step = std::ranges::find(kLeave, doing, &LeavingAction::what);
  expect(step != kLeave.end(), "an agent leaves in these steps");
  if (++step != kLeave.end()) return to(std::move(state), *step);
  return to(std::move(state), LastAction{.what = Last::exit, .say = true});
}

}  // namespace corbd::lifecycle
