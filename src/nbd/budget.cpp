#include "budget.hpp"

#include <algorithm>
#include <utility>

namespace corbd::nbd {
namespace {
constexpr std::uint64_t kTimesWhatIsLeft = 4;
}

void Budget::join(Waiter& device, const std::string& cluster) {
  const auto place = std::ranges::find(shares_, cluster, &Share::cluster);
  device.share_ = place != shares_.end() ? (*place)->shared_from_this() : std::make_shared<Share>(*this, cluster);
}

bool Budget::may_grow(const Share& share, std::uint64_t bytes) const {
  if (shares_.size() == 1) return true;
  const std::uint64_t left = bytes_ - std::min(bytes_, used() + bytes);
  return share.used + bytes <= kTimesWhatIsLeft * left;
}

bool Budget::must_queue(const Share& share) const {
  return std::ranges::any_of(shares_, [&](const Share* one) {
    return one->first != nullptr && (one == &share || may_grow(*one, one->first->wants_));
  });
}

void Budget::add(Share& share, std::uint64_t bytes) {
  share.used += bytes;
  used_.store(used() + bytes, std::memory_order_relaxed);
}

bool Budget::take(Waiter& device, std::uint64_t bytes, std::uint64_t in_flight) {
  if (std::exchange(device.granted_, 0) != 0) return true;
  Share& share = *device.share_;
  const bool reserved = in_flight == 0 || in_flight + bytes <= per_device_;
  if (!reserved && (!has_room(bytes) || !may_grow(share, bytes) || must_queue(share))) return false;
  remove(device);
  add(share, bytes);
  return true;
}

void Budget::give_back(Waiter& device, std::uint64_t bytes) {
  device.share_->used -= bytes;
  used_.store(used() - bytes, std::memory_order_relaxed);
  grant();
}

/// Ends when everybody was asked in turn, and nobody took anything.
void Budget::grant() {
  for (std::size_t asked = 0; asked < shares_.size();) {
    Share& share = *shares_[turn_ % shares_.size()];
    Waiter* const first = share.first;
    if (first == nullptr || !may_grow(share, first->wants_)) {
      ++turn_, ++asked;
      continue;
    }
    if (!has_room(first->wants_)) return;
    remove(*first);
    first->granted_ = first->wants_;
    add(share, first->wants_);
    first->budget_freed();
    ++turn_, asked = 0;
  }
}

void Budget::wait(Waiter& waiter, std::uint64_t bytes) {
  if (waiter.waits_) return;
  waiter.waits_ = true;
  waiter.wants_ = bytes;
  waiter.next_ = nullptr;
  Waiter** last = &waiter.share_->first;
  while (*last != nullptr) last = &(*last)->next_;
  *last = &waiter;
}

void Budget::remove(Waiter& waiter) {
  if (!waiter.waits_) return;
  waiter.waits_ = false;
  Waiter** at = &waiter.share_->first;
  while (*at != &waiter) at = &(*at)->next_;
  *at = waiter.next_;
}

void Budget::forget(Waiter& waiter) {
  remove(waiter);
  // The next waiter may have waited only for this one.
  give_back(waiter, std::exchange(waiter.granted_, 0));
}

}  // namespace corbd::nbd
