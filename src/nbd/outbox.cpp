#include "outbox.hpp"

#include <utility>

#include "corbd/core/expect.hpp"

namespace corbd::nbd {

void Outbox::push(Reply& reply) {
  reply.next_reply = nullptr;
  (empty() ? first_ : last_->next_reply) = &reply;
  last_ = &reply;
}

void Outbox::resume(Reply& reply, std::size_t bytes) {
  expect(!mid_reply(), "one reply at a time is out in part");
  if (empty()) last_ = &reply;
  reply.next_reply = std::exchange(first_, &reply);
  first_sent_ = bytes;
}

Outbox::Parts Outbox::parts(std::span<iovec> into, std::span<std::uint16_t> numbers) const {
  Parts used;
  std::size_t skip = first_sent_;
  for (Reply* reply = first_; reply != nullptr && used.parts + 2 <= into.size(); reply = reply->next_reply) {
    if (skip < reply_bytes) into[used.parts++] = {reply->head.data() + skip, reply_bytes - skip};
    const std::size_t data_skip = skip > reply_bytes ? skip - reply_bytes : 0;
    if (reply->data_bytes > data_skip) into[used.parts++] = {reply->data + data_skip, reply->data_bytes - data_skip};
    numbers[used.replies++] = reply->number;
    skip = 0;
  }
  return used;
}

Reply* Outbox::sent(std::size_t bytes) {
  Reply* const out = first_;
  Reply* last_out = nullptr;
  first_sent_ += bytes;
  while (first_ != nullptr && first_sent_ >= first_->bytes()) {
    first_sent_ -= first_->bytes();
    last_out = std::exchange(first_, first_->next_reply);
  }
  if (last_out == nullptr) return nullptr;
  last_out->next_reply = nullptr;
  return out;
}

Reply* Outbox::clear() {
  first_sent_ = 0;
  last_ = nullptr;
  return std::exchange(first_, nullptr);
}

}  // namespace corbd::nbd
