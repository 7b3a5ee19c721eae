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
  slot.piece_bytes = 0;
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
  if (slot.older == nullptr) show(&slot);
}

void RequestSlots::end(Slot& slot) {
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  (slot.older != nullptr ? slot.older->newer : oldest_) = slot.newer;
  (slot.newer != nullptr ? slot.newer->older : newest_) = slot.older;
  if (slot.older == nullptr) show(oldest_);
  slot.older = slot.newer = nullptr;
}

void RequestSlots::next_piece(const Slot& slot) {
  if (&slot == oldest_) show(&slot);
}

void RequestSlots::show(const Slot* oldest) {
  if (oldest != nullptr) {
    const bool piece = oldest->piece_bytes > 0;
    shown_.oldest_at.store(piece ? oldest->piece_at : oldest->request.offset, std::memory_order_relaxed);
    shown_.oldest_bytes.store(piece ? oldest->piece_bytes : oldest->request.length, std::memory_order_relaxed);
  }
  shown_.oldest_ms.store(oldest != nullptr ? oldest->began_us / 1000 : 0, std::memory_order_relaxed);
}

}  // namespace corbd::nbd
