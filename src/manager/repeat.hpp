// Repeats a call to the plugin until it succeeds, or until no further try is allowed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "corbd/manager/manager.hpp"

namespace corbd::manager {

/// Parts that every operation needs. They outlive the operations.
struct Base {
  executor control;
  Clock& clock;
  Ports ports;
  Config config;
  Listener* listener = nullptr;

  void say(Event event) const {
    if (listener != nullptr) listener->heard(event);
  }
};

struct Tries {
  std::uint32_t failed = 0;   ///< failures that may pass: UNAVAILABLE, RESOURCE_EXHAUSTED, a try that took too long
  std::uint32_t pending = 0;  ///< ABORTED: the plugin still works on an earlier call for the volume
};

/// Counts the failure and returns the pause before the next try. Nothing: there is none, after the third failure of the
/// first kind, and after every other error. A pending operation always gets another try. random: in [0, 1).
std::optional<std::chrono::milliseconds> pause_after(errc code, Tries& tries, double random);

/// `about`: the events that the call causes, without a message. `doing` comes in front of an error.
template <class T>
task<result<T>> repeat(const Base& base, std::function<task<result<T>>(Until)> call, std::string doing, Event about,
                       Until until) {
  Tries tries;
  for (;;) {
    auto answer = co_await call(until.at_most(base.clock.now() + base.config.one_try));
    if (answer) co_return answer;
    const Error error = with_context(doing, answer.error());
    if (base.clock.now() >= until.deadline || (until.scope != nullptr && until.scope->cancelled())) co_return error;
    const auto pause = pause_after(error.code, tries, base.config.jitter());
    if (!pause) co_return error;
    if (tries.failed > 0 || tries.pending == 1) {
      about.message = error.text + "; trying again";
      base.say(about);
    }
    const Waited slept = co_await sleep_until(base.control, base.clock,
                                              std::min(base.clock.now() + *pause, until.deadline), until.scope);
    if (slept == Waited::cancelled) co_return Error{errc::cancelled, error.text};
    if (base.clock.now() >= until.deadline) co_return Error{errc::timed_out, error.text};
  }
}

}  // namespace corbd::manager
