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

// A planned restart, in this order: the next agent waits. Callers end first, while devices are served. Then each device
// stands still until the next agent serves it, a few at a time. What cannot be undone begins once the next agent has
// the records.
constexpr std::array kHandOver{
    Action{.what = Do::release_listeners},
    Action{.what = Do::await_callers, .within = kCallsEndForNextWithin},
    Action{.what = Do::quiesce},
    Action{.what = Do::ask_next, .within = kNextAnswersWithin},
    Action{.what = Do::hand_over_lock},
    Action{.what = Do::stop_new_work},
    Action{.what = Do::end_callers, .within = kCallsEndWithin},
    Action{.what = Do::unregister},
    Action{.what = Do::tell_successor},
    Action{.what = Do::note_reserve},  // only who goes into reserve
    Action{.what = Do::hand_over_listeners},
    Action{.what = Do::hand_over_links},
    Action{.what = Do::hear_last_signals},
};

Transition stop_volumes(State state) {
  return to(std::move(state), {.what = Do::stop_volumes, .within = kVolumesStopWithin});
}

bool goes_into_reserve(const State& state) { return !state.told_to_end() && state.settings.goes_into_reserve(); }

/// A later signal ends the process.
Transition gone(State state) {
  if (state.failed) return end_with(std::move(state), {.what = Do::exit, .code = 1});
  const Do what = goes_into_reserve(state) ? Do::go_to_reserve : Do::exit;
  return end_with(std::move(state), {.what = what});
}

Transition next_of_handover(State state) {
  const auto* now = std::ranges::find(kHandOver, state.doing, &Action::what);
  expect(now + 1 < kHandOver.end(), "a handover goes on from one of its steps");
  const auto* next = now + 1;
  if (next->what == Do::note_reserve && !goes_into_reserve(state)) ++next;
  return to(std::move(state), *next);
}

/// The process must be able to end, and what is under way is answered.
Transition not_handed_over(State state) {
  state.failed = true;
  switch (state.doing) {
    case Do::hand_over_lock:
      return to(std::move(state), {.what = Do::stop_new_work});
    case Do::hand_over_listeners:
      return stop_volumes(std::move(state));
    default:
      return to(std::move(state), {.what = Do::hear_last_signals});
  }
}

}  // namespace

Transition hand_over(State state) {
  state.phase = Phase::handing_over;
  return to(std::move(state), kHandOver.front());
}

Transition hand_over_done(State state, errc code) {
  // A living agent with the lock may go on with it, so only its end proves that nobody else serves.
  const bool can_serve_on = state.doing == Do::quiesce || state.doing == Do::ask_next ||
                            (state.doing == Do::hand_over_lock && code == errc::not_found);
  if (can_serve_on && code != errc::ok) return to(std::move(state), {.what = Do::serve_on});
  const bool needed =
      state.doing == Do::hand_over_lock || state.doing == Do::hand_over_listeners || state.doing == Do::hand_over_links;
  if (needed && code != errc::ok) return not_handed_over(std::move(state));
  switch (state.doing) {
    case Do::serve_on:
      state.phase = Phase::serving;
      return serve_done(std::move(state), code);
    case Do::end_callers:
      return state.failed ? stop_volumes(std::move(state)) : next_of_handover(std::move(state));
    case Do::stop_volumes:
      return to(std::move(state), {.what = Do::hear_last_signals});
    case Do::hear_last_signals:
      return gone(std::move(state));
    default:
      return next_of_handover(std::move(state));
  }
}

/// Leaves in another order than a handover: metrics and healing stop first, then volumes, then callers that wait for an
/// answer, and the registration last.
Transition leave(State state) {
  state.phase = Phase::leaving;
  return to(std::move(state), {.what = Do::stop_new_work, .say = true});
}

Transition leave_done(State state) {
  switch (state.doing) {
    case Do::wait_for_users:
      return leave(std::move(state));
    case Do::stop_new_work:
      return stop_volumes(std::move(state));
    case Do::stop_volumes:
      return to(std::move(state), {.what = Do::end_callers, .within = kCallsEndWithin});
    case Do::end_callers:
      return to(std::move(state), {.what = Do::close_clients});
    case Do::close_clients:
      return to(std::move(state), {.what = Do::unregister});
    default:
      return end_with(std::move(state), {.what = Do::exit, .say = true});
  }
}

}  // namespace corbd::lifecycle
