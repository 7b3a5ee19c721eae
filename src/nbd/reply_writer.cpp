#include "reply_writer.hpp"

#include <cerrno>

#include "slot.hpp"

namespace corbd::nbd {
namespace {
// One piece of socket memory holds this much. A thread of the image does not copy more for us.
constexpr std::uint32_t kMostAlone = 32u << 10;
}  // namespace

ReplyWriter::ReplyWriter(const IoLoop& loop, int socket, Ledger& ledger, LinkState& state, const RequestSlots& slots)
    : loop_(loop), socket_(socket), ledger_(ledger), state_(state), slots_(slots) {}

void ReplyWriter::answer(Slot& slot, std::uint32_t error) {
  ledger_.answered(slot.number, error);
  slot.reply(error);
  outbox_.push(slot);
}

void ReplyWriter::resume(Slot& slot, std::uint32_t error, std::size_t sent) {
  if (sent == 0) return answer(slot, error);
  ledger_.answered(slot.number, error);
  slot.reply(error);
  outbox_.resume(slot, sent);
  mid_reply_ = true;
  publish();
}

ReplyWriter::Sent ReplyWriter::send() {
  iovec parts[ledger::kMostSends];
  const std::lock_guard sole(sending_);
  // The other bytes of that reply come first. answered_alone() puts them there.
  if (unfinished_ != nullptr) return {Outcome::waits, nullptr};
  const auto used = outbox_.parts(parts, ledger_.sending());
  const ssize_t sent = ledger_.send(socket_, std::span(parts).first(used.parts), used.replies);
  if (sent < 0)
    return {errno == EAGAIN ? Outcome::full : errno == EINTR ? Outcome::progress : Outcome::failed, nullptr};
  Reply* const out = outbox_.sent(static_cast<std::size_t>(sent));
  for (const Reply* reply = out; reply != nullptr; reply = reply->next_reply) ledger_.out(reply->number);
  mid_reply_ = outbox_.mid_reply();
  publish();
  return {Outcome::progress, out};
}

Reply* ReplyWriter::close(LinkState::State state) {
  const std::lock_guard sole(sending_);
  state_.state.store(state, std::memory_order_release);
  return outbox_.clear();
}

/// Callable from any thread. It only chooses the sender: with other operations under way, one call for all replies is
/// cheaper.
bool ReplyWriter::alone(const Slot& slot) const {
  return slots_.in_flight() == 1 && !slot.request.in_pieces() && slot.request.length <= kMostAlone && !loop_.here();
}

void ReplyWriter::answer_alone(Slot& slot) {
  if (!alone(slot)) return;
  const std::unique_lock sole(sending_, std::try_to_lock);
  if (!sole || !state_.serving() || mid_reply_ || unfinished_ != nullptr) return;
  slot.reply(0);
  iovec parts[2] = {{slot.head.data(), reply_bytes}, {slot.data, slot.data_bytes}};
  ledger_.answered(slot.number, 0);
  ledger_.sending()[0] = slot.number;
  const ssize_t sent = ledger_.send(socket_, std::span(parts).first(slot.data_bytes > 0 ? 2 : 1), 1);
  if (sent <= 0) return;
  slot.sent = static_cast<std::size_t>(sent);
  if (slot.sent < slot.bytes())
    unfinished_ = &slot;
  else
    ledger_.out(slot.number);
  publish();
}

bool ReplyWriter::answered_alone(Slot& slot) {
  if (slot.sent == slot.bytes()) return true;
  const std::lock_guard sole(sending_);
  outbox_.resume(slot, slot.sent);
  mid_reply_ = true;
  unfinished_ = nullptr;
  return false;
}

/// Called by the sender.
void ReplyWriter::publish() {
  ledger::Writer writer;
  if (unfinished_ != nullptr)
    writer = {unfinished_->number + 1u, static_cast<std::uint32_t>(unfinished_->sent)};
  else if (outbox_.mid_reply())
    writer = {outbox_.first().number + 1u, static_cast<std::uint32_t>(outbox_.first_sent())};
  ledger_.publish(writer);
}

}  // namespace corbd::nbd
