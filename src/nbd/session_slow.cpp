// Requests that take too long: each is told of while it is under way, and again when it ends. A session that has
// nothing under way looks at nothing, and a busy one looks once in that time.
#include <chrono>
#include <utility>

#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {

void Session::watch_slow(std::int64_t at_us) {
  waits_slow_ = true;
  slow_.expires_at(std::chrono::steady_clock::time_point(std::chrono::microseconds(at_us)));
  slow_.async_wait([this](boost::system::error_code) {
    waits_slow_ = false;
    if (serving()) look_for_slow();
    destroy_if_idle();
  });
}

/// One line for all that have become slow, as a silent cluster makes hundreds of them slow at once.
void Session::look_for_slow() {
  const std::int64_t now = now_us();
  const Slot* oldest = nullptr;
  int slow = 0;
  Slot* slot = oldest_;
  for (; slot != nullptr && slot->began_us + slow_us_ <= now; slot = slot->newer) {
    if (std::exchange(slot->told_slow, true)) continue;
    stats_.was_slow();
    if (slow++ == 0) oldest = slot;
  }
  if (oldest != nullptr) tell_slow(*oldest, now - oldest->began_us, slow);
  if (slot != nullptr) watch_slow(slot->began_us + slow_us_);
}

void Session::note_slow(Slot& slot, std::int64_t took_us) {
  if (!slot.told_slow) stats_.was_slow();
  tell_slow(slot, took_us, 0);
}

void Session::tell_slow(const Slot& slot, std::int64_t age_us, int under_way) {
  const auto held_back = loop_.slow_lines.next(now_us());
  if (!held_back) return;
  log::warning("nbd.slow_request", {{"volume", name_},
                                    {"image", image_.key().text()},
                                    {"operation", device::name(kind_of(slot.request.command))},
                                    {"offset", slot.request.offset},
                                    {"length", slot.request.length},
                                    {"age_ms", age_us / 1000},
                                    {"under_way", under_way},
                                    {"lines_held_back", *held_back}});
}

}  // namespace corbd::nbd
