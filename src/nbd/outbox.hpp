// Replies on their way out, in order. Several may leave with one sendmsg, and one may leave in parts.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec.hpp"
#include "corbd/core/expect.hpp"

namespace corbd::nbd {

/// A reply to send. It belongs to its creator; the outbox only borrows it from push() until sent() or clear() returns
/// it.
struct Reply {
  Reply* next_reply = nullptr;
  std::array<std::byte, reply_bytes> head{};
  std::byte* data = nullptr;
  std::uint32_t data_bytes = 0;
  std::uint16_t number = 0;  ///< number of its slot, in the ledger

  std::size_t bytes() const { return reply_bytes + data_bytes; }
};

class Outbox {
 public:
  bool empty() const { return first_ == nullptr; }
  void push(Reply& reply);
  /// Whether the first reply is partly sent.
  bool mid_reply() const { return first_sent_ > 0; }
  /// The reply that is out in part. Only while mid_reply().
  const Reply& first() const {
    expect(mid_reply(), "a reply is out in part");
    return *first_;
  }
  std::size_t first_sent() const { return first_sent_; }
  /// Puts a reply first, of which that many bytes are sent already. Requires !mid_reply().
  void resume(Reply& reply, std::size_t bytes);
  struct Parts {
    std::size_t parts = 0, replies = 0;
  };
  /// Returns the bytes to send next, and the numbers of their replies: as many as there may be parts.
  Parts parts(std::span<iovec> into, std::span<std::uint16_t> numbers) const;
  /// Counts that many bytes as sent. Returns the replies that are completely sent now, as a list.
  Reply* sent(std::size_t bytes);
  /// Removes and returns the remaining replies, as a list.
  Reply* clear();

 private:
  Reply* first_ = nullptr;
  Reply* last_ = nullptr;
  std::size_t first_sent_ = 0;  ///< sent bytes of the first reply
};

}  // namespace corbd::nbd
