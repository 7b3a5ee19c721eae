// Taking over: the predecessor serves, and passes on its lock, listeners and links, one message each.
#include "phases.hpp"

namespace corbd::lifecycle {
namespace {

// The predecessor waits for this, and serves meanwhile.
constexpr std::chrono::seconds kPreopenWithin{100};
// The predecessor may first wait for commands to the kernel's driver, and for calls under way.
constexpr std::chrono::seconds kSpeaksWithin{150};
// An agent that ended holds its lock a moment longer.
constexpr int kLockTries = 200;
constexpr std::chrono::milliseconds kLockAgain{50};
// Healing of other volumes waits. A try that goes on is no danger to them, and is repeated.
constexpr std::chrono::seconds kFinishWithin{5};

Transition hear(State state, bool silent = false) {
  return to(std::move(state), TakingOverAction{.what = TakingOver::hear, .within = kSpeaksWithin, .say = silent});
}

/// The predecessor has ended, or has nothing left.
Transition predecessor_ends(State state) {
  state.predecessor_ended = true;
  if (state.has_lock) return to(std::move(state), TakingOverAction{TakingOver::finish, kFinishWithin});
  state.tries = 0;
  const auto pause = state.settings.restart_wait;
  return to(std::move(state), TakingOverAction{.what = TakingOver::lock, .pause = pause});
}

/// A living agent may still send the rest: only its end proves that it holds nothing.
Transition not_heard(State state, errc why) {
  if (why == errc::not_found) return predecessor_ends(std::move(state));
  if (why == errc::timed_out && state.has_lock) return hear(std::move(state), true);
  return refuse(std::move(state));
}

Transition locked(State state, errc code) {
  if (code == errc::in_use && ++state.tries < kLockTries)
    return to(std::move(state), TakingOverAction{.what = TakingOver::lock, .pause = kLockAgain});
  if (code != errc::ok) return refuse(std::move(state));
  state.owns_state = state.has_lock = true;
  return to(std::move(state), TakingOverAction{TakingOver::load_records});
}

}  // namespace

Transition preopen(State state) { return to(std::move(state), TakingOverAction{TakingOver::preopen, kPreopenWithin}); }

Transition take_over_heard(State state, handover::PeerMessage::What word) {
  using What = handover::PeerMessage::What;
  switch (word) {
    case What::ready:
      return to(std::move(state), TakingOverAction{TakingOver::say_ready});
    case What::begins:
      state.owns_state = true;
      return hear(std::move(state));
    case What::lock:
      state.has_lock = true;
      return to(std::move(state), TakingOverAction{TakingOver::take_lock});
    case What::listener:
      return to(std::move(state), TakingOverAction{TakingOver::take_listener});
    case What::link:
      return to(std::move(state), TakingOverAction{TakingOver::take_link});
    case What::end:
      return predecessor_ends(std::move(state));
    case What::loaded:
    case What::served:
      break;  // only a next agent sends this
  }
  return refuse(std::move(state));
}

Transition take_over_done(State state, TakingOver doing, errc code) {
  if (doing == TakingOver::hear) return not_heard(std::move(state), code);
  if (doing == TakingOver::lock) return locked(std::move(state), code);
  if (doing == TakingOver::finish) return to(std::move(state), ServingAction{Serving::serve});
  if (code != errc::ok) return refuse(std::move(state));
  if (doing == TakingOver::take_lock) return to(std::move(state), TakingOverAction{TakingOver::say_loaded});
  if (doing == TakingOver::load_records)
    return to(std::move(state), TakingOverAction{TakingOver::finish, kFinishWithin});
  return hear(std::move(state));
}

}  // namespace corbd::lifecycle
