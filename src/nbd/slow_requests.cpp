#include "slow_requests.hpp"

#include <chrono>
#include <utility>

#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {

SlowRequests::SlowRequests(IoLoop& loop, std::int64_t slow_us, LinkStats& stats, const std::string& name,
                           std::string image, std::function<void()> due)
    : loop_(loop),
      slow_us_(slow_us),
      stats_(stats),
      name_(name),
      image_(std::move(image)),
      due_(std::move(due)),
      timer_(loop.io()) {}

void SlowRequests::watch(std::int64_t began_us) {
  if (slow_us_ == 0 || std::exchange(waits_, true)) return;
  timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::microseconds(began_us + slow_us_)));
  timer_.async_wait([this](boost::system::error_code) {
    waits_ = false;
    const auto due = due_;  // a copy, because the call may destroy this object
    due();
  });
}

void SlowRequests::look(Slot* oldest) {
  const std::int64_t now = now_us();
  const Slot* first = nullptr;
  int slow = 0;
  Slot* slot = oldest;
  for (; slot != nullptr && slot->began_us + slow_us_ <= now; slot = slot->newer) {
    if (std::exchange(slot->told_slow, true)) continue;
    stats_.was_slow();
    if (slow++ == 0) first = slot;
  }
  if (first != nullptr) tell(*first, now - first->began_us, slow);
  if (slot != nullptr) watch(slot->began_us);
}

void SlowRequests::ended(Slot& slot, std::int64_t took_us) {
  if (slow_us_ == 0 || took_us < slow_us_) return;
  if (!slot.told_slow) stats_.was_slow();
  tell(slot, took_us, 0);
}

void SlowRequests::tell(const Slot& slot, std::int64_t age_us, int under_way) {
  const auto held_back = loop_.slow_lines.next(now_us());
  if (!held_back) return;
  log::warning("nbd.slow_request", {{"volume", name_},
                                    {"image", image_},
                                    {"operation", device::name(kind_of(slot.request.command))},
                                    {"offset", slot.request.offset},
                                    {"length", slot.request.length},
                                    {"age_ms", age_us / 1000},
                                    {"under_way", under_way},
                                    {"lines_held_back", *held_back}});
}

}  // namespace corbd::nbd
