// Replies: from the end of an operation to the socket. session.cpp reads requests, session_operations.cpp asks the
// image.
//
// The io thread sends replies in batches. If an operation is the only one under way, the thread on which it ended sends
// its reply. That saves the wake-up of the io thread. The io thread does everything else, as for every operation: the
// completion reaches it right after.
//
// There is one sender at a time: the holder of `sending_`. An operation belongs to the image's thread until
// IoLoop::complete(), and to the io thread from then on. So nobody else touches the slot or its buffer meanwhile, and
// ~Session() comes after the last operation. stop() takes the same mutex to leave `serving`: nothing is sent after it.
#include <sys/socket.h>

#include <cerrno>

#include "slot.hpp"

namespace corbd::nbd {
namespace {
// One piece of socket memory holds this much. A thread of the image does not copy more for us.
constexpr std::uint32_t kMostAlone = 32u << 10;
}  // namespace

void Session::answer(Slot& slot, std::uint32_t error) {
  ledger_.answered(slot.number, error);
  slot.reply(error);
  outbox_.push(slot);
}

void Session::flush() {
  while (serving() && !waits_writable_ && !outbox_.empty()) {
    iovec parts[ledger::kMostSends];
    ssize_t sent;
    Reply* out = nullptr;
    {
      const std::lock_guard sole(sending_);
      // The other bytes of that reply come first. finish() puts them there, and the end of that batch sends them.
      if (unfinished_ != nullptr) return;
      const auto used = outbox_.parts(parts, ledger_.sending());
      sent = ledger_.send(fd_, std::span(parts).first(used.parts), used.replies);
      if (sent >= 0) {
        out = outbox_.sent(static_cast<std::size_t>(sent));
        for (const Reply* reply = out; reply != nullptr; reply = reply->next_reply) ledger_.out(reply->number);
        publish_writer();
      }
      mid_reply_ = outbox_.mid_reply();
    }
    if (sent >= 0) {
      release_all(out);
    } else if (errno == EAGAIN) {
      wait_writable();
    } else if (errno != EINTR) {
      stop(State::closed, 0);
    }
  }
}

void Session::wait_writable() {
  waits_writable_ = true;
  stream_.async_wait(asio::posix::descriptor_base::wait_write, [this](boost::system::error_code) {
    waits_writable_ = false;
    batch_ended();
  });
}

void Session::batch_ended() {
  flush();
  if (blocked_ && freed_ && serving()) turn();
  destroy_if_idle();
}

void Session::release_all(Reply* replies) {
  while (replies != nullptr) {
    Reply& reply = *replies;
    replies = reply.next_reply;
    release(static_cast<Slot&>(reply));
  }
}

/// Callable from any thread. It only chooses the sender: with other operations under way, one call for all replies is
/// cheaper.
bool Session::alone(const Slot& slot) const {
  return in_flight() == 1 && !slot.request.in_pieces() && slot.request.length <= kMostAlone && !loop_.here();
}

/// Runs on a thread of the image, which must not wait. The io thread sends the bytes that cannot be sent now.
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

/// Runs on the io thread, when that operation has ended.
void Session::answered_alone(Slot& slot) {
  if (slot.sent == slot.bytes()) return release(slot);
  const std::lock_guard sole(sending_);
  outbox_.resume(slot, slot.sent);
  mid_reply_ = true;
  unfinished_ = nullptr;
}

}  // namespace corbd::nbd
