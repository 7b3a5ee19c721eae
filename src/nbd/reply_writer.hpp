// Writes a link's replies, from a slot to the socket.
//
// The io thread sends replies in batches. If an operation is the only one under way, the thread on which it ended sends
// its reply. That saves the wake-up of the io thread. The io thread does everything else, as for every operation: the
// completion reaches it right after.
//
// There is one sender at a time: the holder of `sending_`. An operation belongs to the image's thread until
// IoLoop::complete(), and to the io thread from then on. So nobody else touches the slot or its buffer meanwhile, and
// ~Session() comes after the last operation.
#pragma once

#include <mutex>

#include "io_loop.hpp"
#include "ledger.hpp"
#include "link_state.hpp"
#include "outbox.hpp"
#include "request_slots.hpp"

namespace corbd::nbd {

/// Io thread, except answer_alone().
class ReplyWriter {
 public:
  ReplyWriter(const IoLoop& loop, int socket, Ledger& ledger, LinkState& state, const RequestSlots& slots);

  void answer(Slot& slot, std::uint32_t error);
  /// Takes over a reply of a dead server, of which that many bytes are sent. If there are any, it is the first one.
  void resume(Slot& slot, std::uint32_t error, std::size_t sent);
  bool empty() const { return outbox_.empty(); }

  enum class Outcome : std::uint8_t {
    progress,  ///< send() may go on
    full,      ///< the socket takes no more now
    waits,     ///< the end of a lone operation comes first, and with it a batch_ended()
    failed
  };
  struct Sent {
    Outcome outcome;
    Reply* out;  ///< list of the replies that are completely sent now
  };
  /// Sends as many replies as one call takes. Requires !empty().
  Sent send();
  /// Leaves the state `serving`: nothing is sent from then on. Returns the remaining replies, as a list.
  Reply* close(LinkState::State state);

  /// Called on a thread of the image, which must not wait: sends the reply of an operation without error, if that is
  /// the only one under way. Leaves to the io thread what cannot be sent now.
  void answer_alone(Slot& slot);
  /// An operation has ended whose reply answer_alone() has begun to send. Returns whether all of it is sent; otherwise
  /// the rest is the next to be sent.
  bool answered_alone(Slot& slot);

 private:
  bool alone(const Slot& slot) const;
  void publish();

  const IoLoop& loop_;
  const int socket_;
  Ledger& ledger_;
  LinkState& state_;
  const RequestSlots& slots_;
  Outbox outbox_;
  std::mutex sending_;          ///< held by the sender, or while the state leaves `serving`. Guards the next two.
  bool mid_reply_ = false;      ///< the first reply of the outbox is partly sent
  Slot* unfinished_ = nullptr;  ///< answer_alone() has sent a part of its reply
};

}  // namespace corbd::nbd
