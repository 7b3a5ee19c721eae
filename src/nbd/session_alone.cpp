// A reply that leaves from the thread on which its operation ended, when it is the only one under way. That spares its
// caller the wake-up of the io thread. The io thread does everything else, as for every operation: the completion
// reaches it right after.
//
// There is one sender at a time: whoever has `sending_`. An operation belongs to the image's thread until
// IoLoop::complete(), and to the io thread from then on. So nobody else touches the slot or its buffer meanwhile, and
// ~Session() comes after the last operation. stop() takes the same mutex to leave `serving`: nothing is sent after it.
#include <sys/socket.h>

#include "slot.hpp"

namespace corbd::nbd {
namespace {
// One piece of socket memory takes this much at once. A thread of the image does not copy more for us.
constexpr std::uint32_t kMostAlone = 32u << 10;
}  // namespace

/// Any thread. It only chooses who sends: with others under way, one call for all replies is cheaper.
bool Session::alone(const Slot& slot) const {
  return in_flight() == 1 && !slot.request.in_pieces() && slot.request.length <= kMostAlone && !loop_.here();
}

/// A thread of the image, which must not wait. Whatever does not go now is left to the io thread.
void Session::answer_alone(Slot& slot) {
  const std::unique_lock sole(sending_, std::try_to_lock);
  if (!sole || !serving() || mid_reply_ || unfinished_ != nullptr) return;
  slot.reply(0);
  iovec parts[2] = {{slot.head.data(), reply_bytes}, {slot.data, slot.data_bytes}};
  ledger_.answered(slot.number, 0);
  ledger_.sending()[0] = slot.number;
  const ssize_t sent = ledger_.send(fd_, std::span(parts).first(slot.data_bytes > 0 ? 2 : 1), 1);
  if (sent <= 0) return;
  slot.sent = static_cast<std::size_t>(sent);
  if (slot.sent < slot.bytes())
    unfinished_ = &slot;
  else
    ledger_.out(slot.number);
  publish_writer();
}

/// Io thread, when that operation ended.
void Session::answered_alone(Slot& slot) {
  if (slot.sent == slot.bytes()) return release(slot);
  const std::lock_guard sole(sending_);
  outbox_.resume(slot, slot.sent);
  mid_reply_ = true;
  unfinished_ = nullptr;
}

}  // namespace corbd::nbd
