// How an agent ends: it hands its devices to the next agent, or leaves them to the next start.
#include "phases.hpp"

namespace corbd::lifecycle {
namespace {

// Sessions and operations come first. Neither calls under way nor mere readers may take their time.
constexpr std::chrono::milliseconds kVolumesStopWithin{1600}, kCallsEndWithin{200};
// The next agent waits for nothing else.
constexpr std::chrono::seconds kCallsEndForNextWithin{2};

Transition end_callers(State state, duration within) {
  return to(std::move(state), {.what = Do::end_callers, .within = within});
}

Transition stop_volumes(State state) {
  return to(std::move(state), {.what = Do::stop_volumes, .within = kVolumesStopWithin});
}

/// A signal that comes later ends the process.
Transition gone(State state) {
  if (state.failed) return end_with(std::move(state), {.what = Do::exit, .code = 1});
  const bool stays = !state.told_to_end() && state.settings.goes_into_reserve();
  return end_with(std::move(state), {.what = stays ? Do::go_to_reserve : Do::exit});
}

}  // namespace

/// A planned restart: the next agent waits. Callers end first, while devices are served. Then each device stands still
/// until the next agent serves it, a few at a time. What cannot be undone begins once the next agent has the records.
Transition hand_over(State state) {
  state.phase = Phase::handing_over;
  return to(std::move(state), {.what = Do::release_listeners});
}

Transition hand_over_done(State state, errc code) {
  // Whoever has the lock and lives may go on with it, so only its end says that nobody else serves.
  const bool can_serve_on = state.doing == Do::quiesce || state.doing == Do::ask_next ||
                            (state.doing == Do::hand_over_lock && code == errc::not_found);
  if (can_serve_on && code != errc::ok) return to(std::move(state), {.what = Do::serve_on});
  const bool needed =
      state.doing == Do::hand_over_lock || state.doing == Do::hand_over_listeners || state.doing == Do::hand_over_links;
  if (needed && code != errc::ok) {
    state.failed = true;
    // The process must be able to end, and what is under way is answered. One of both, or both, has happened later.
    if (state.doing == Do::hand_over_lock) return to(std::move(state), {.what = Do::stop_new_work});
    if (state.doing == Do::hand_over_listeners) return stop_volumes(std::move(state));
  }
  switch (state.doing) {
    case Do::release_listeners:
      return to(std::move(state), {.what = Do::await_callers, .within = kCallsEndForNextWithin});
    case Do::await_callers:
      return to(std::move(state), {.what = Do::quiesce});
    case Do::quiesce:
      return to(std::move(state), {.what = Do::ask_next, .within = kNextAnswersWithin});
    case Do::ask_next:
      return to(std::move(state), {.what = Do::hand_over_lock});
    case Do::serve_on:
      state.phase = Phase::serving;
      return serve_done(std::move(state), code);
    case Do::hand_over_lock:
      return to(std::move(state), {.what = Do::stop_new_work});
    case Do::stop_new_work:
      return end_callers(std::move(state), kCallsEndWithin);
    case Do::end_callers:
      if (state.failed) return stop_volumes(std::move(state));
      return to(std::move(state), {.what = Do::unregister});
    case Do::unregister:
      return to(std::move(state), {.what = Do::tell_successor});
    case Do::tell_successor:
      if (!state.told_to_end() && state.settings.goes_into_reserve())
        return to(std::move(state), {.what = Do::note_reserve});
      [[fallthrough]];
    case Do::note_reserve:
      return to(std::move(state), {.what = Do::hand_over_listeners});
    case Do::hand_over_listeners:
      return to(std::move(state), {.what = Do::hand_over_links});
    case Do::hand_over_links:
    case Do::stop_volumes:
      return to(std::move(state), {.what = Do::hear_last_signals});
    default:
      return gone(std::move(state));
  }
}

/// Leaving has another order than a handover: metrics and healing stop first, then volumes, then callers that wait
/// for an answer, and the registration last.
Transition leave(State state) {
  state.phase = Phase::leaving;
  return to(std::move(state), {.what = Do::stop_new_work, .say = true});
}

Transition leave_done(State state) {
  switch (state.doing) {
    case Do::see_users_out:
      return leave(std::move(state));
    case Do::stop_new_work:
      return stop_volumes(std::move(state));
    case Do::stop_volumes:
      return end_callers(std::move(state), kCallsEndWithin);
    case Do::end_callers:
      return to(std::move(state), {.what = Do::close_clients});
    case Do::close_clients:
      return to(std::move(state), {.what = Do::unregister});
    default:
      return end_with(std::move(state), {.what = Do::exit, .say = true});
  }
}

}  // namespace corbd::lifecycle
