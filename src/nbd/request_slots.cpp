#include "request_slots.hpp"

#include <utility>

#include "slot.hpp"

namespace corbd::nbd {

RequestSlots::RequestSlots(Session& of, LinkState& shown) : of_(of), shown_(shown) {}
RequestSlots::~RequestSlots() = default;

Slot& RequestSlots::take(const Request& request) {
  if (free_ == nullptr) free_ = all_.emplace_back(std::make_unique<Slot>(of_, all_.size())).get();
  Slot& slot = *std::exchange(free_, free_->next);
  ++used_;
  slot.request = request;
  slot.sent = 0;
  return slot;
}

void RequestSlots::give_back(Slot& slot) {
  slot.next = std::exchange(free_, &slot);
  --used_;
}

void RequestSlots::begin(Slot& slot, std::int64_t read_us) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  slot.began_us = read_us;
  slot.told_slow = false;
  slot.older = std::exchange(newest_, &slot);
  (slot.older != nullptr ? slot.older->newer : oldest_) = &slot;
  if (slot.older == nullptr) shown_.oldest_ms.store(slot.began_us / 1000, std::memory_order_relaxed);
}

void RequestSlots::end(Slot& slot) {
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  (slot.older != nullptr ? slot.older->newer : oldest_) = slot.newer;
  (slot.newer != nullptr ? slot.newer->older : newest_) = slot.older;
  if (slot.older == nullptr)
    shown_.oldest_ms.store(oldest_ != nullptr ? oldest_->began_us / 1000 : 0, std::memory_order_relaxed);
  slot.older = slot.newer = nullptr;
}

}  // namespace corbd::nbd
