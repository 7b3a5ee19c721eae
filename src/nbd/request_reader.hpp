// Reads a link's requests, from the socket to a slot with its payload.
#pragma once

#include <optional>
#include <vector>

#include "corbd/image/block_image.hpp"
#include "counters.hpp"
#include "framer.hpp"
#include "inherited_session.hpp"
#include "io_loop.hpp"
#include "ledger.hpp"
#include "link_stats.hpp"
#include "reply_writer.hpp"
#include "request_slots.hpp"

namespace corbd::nbd {

/// Io thread.
class RequestReader {
 public:
  struct Parts {
    IoLoop& loop;
    Budget::Waiter& waiter;  ///< told when the budget has room again
    const image::BlockImage& image;
    bool read_only;
    int socket;
    Ledger& ledger;
    RequestSlots& slots;
    ReplyWriter& writer;  ///< gets the requests that are not for the image
    LinkStats& stats;
    Counters& counters;
  };
  enum class Halt : std::uint8_t {
    none,
    no_bytes,  ///< the socket has no more bytes now, or it is another device's turn
    no_room,   ///< for the next request or its reply
    boundary,  ///< it drains, or the client has said goodbye, and no message has begun
    closed,    ///< the peer has ended the stream
    broken     ///< the stream is lost
  };
  explicit RequestReader(const Parts& parts);

  /// Takes over all debts of a dead server. `again`: requests for the image, perhaps for a second time, because nobody
  /// was told that they are done. Returns false if something cannot be read: then nobody may resume.
  bool take_over(const InheritedSession& inherited, std::vector<Slot*>& again);

  /// Begins a turn of this device. Until it halts, next() may be called.
  void begin_turn();
  /// Returns the next request for the image; nullptr: halt() says why there is none, until the next turn.
  Slot* next();
  /// Returns when the last request was read, as now_us().
  std::int64_t read_us() const { return read_us_; }
  Halt halt() const { return halt_; }
  bool has_no_room() const { return halt_ == Halt::no_room; }
  /// Whether it halted for lack of room, and a slot was released since.
  bool may_have_room() const { return has_no_room() && freed_; }

  /// Ends a request: its reply is sent, or never will be.
  void release(Slot& slot);
  void release_all(Reply* replies);

  /// While it drains, it reads no message that has not begun.
  void set_draining(bool draining) { draining_ = draining; }
  bool draining() const { return draining_; }
  /// Whether no message has begun, and no request waits for room.
  bool at_boundary() const { return !pending_ && framer_.at_boundary(); }
  /// Whether the client has said goodbye. After that only the end of its stream is expected.
  bool leaving() const { return leaving_; }
  /// Whether the stream has ended, or has other bytes after the goodbye.
  bool has_left() const;
  /// Drops the request that has begun: the link has ended.
  void close();

 private:
  /// A request that waits for room for itself or its reply.
  struct Pending {
    Request request;
    std::uint32_t error = 0;
    bool is_for_image() const { return error == 0 && (request.length > 0 || request.command == Command::flush); }
  };

  Slot* parse();
  void receive();
  bool take_room(const Pending& pending);
  Slot* begin(const Pending& pending);
  void publish();

  const Parts parts_;
  Framer framer_;
  std::optional<Pending> pending_;
  Slot* filling_ = nullptr;  ///< a write whose payload is coming
  std::uint64_t budget_used_ = 0;
  bool draining_ = false, leaving_ = false;
  // This turn:
  Halt halt_ = Halt::none;
  int reads_ = 0;
  bool emptied_ = false;      ///< the last read got less than it asked for
  bool freed_ = false;        ///< a slot was released
  std::int64_t read_us_ = 0;  ///< when the request that is being started was read
};

}  // namespace corbd::nbd
