// The way of a request through its session: turn(), submit(), finish(), flush().
#include "session.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>

#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {
namespace {

// The kernel sends discards of 4 GiB, which are 1,024 objects of 4 MiB. librados blocks beyond objecter_inflight_ops
// (rbd/connect.cpp). In pieces, one after another, a discard takes 64 of them.
constexpr std::uint32_t kPiece = 256u << 20;

}  // namespace

Session::Session(IoLoop& loop, image::BlockImage& image, const device::ServeOptions& options, Fd socket,
                 Notices notices, Counters& counters, std::unique_ptr<InheritedSession> inherited)
    : loop_(loop),
      image_(image),
      notices_(std::move(notices)),
      counters_(counters),
      stream_(loop.io().get_executor(), socket.get()),
      fd_(socket.release()),
      lost_cache_(options.cache_lost),
      slow_(loop, counters.slow_us, stats_, name_, image.key().text(),
            [this] {
              if (serving()) slow_.look(slots_.oldest());
              destroy_if_idle();
            }),
      ledger_(loop.make_ledger()),
      inherited_(std::move(inherited)),
      writer_(loop, fd_, ledger_, *link_state_, slots_),
      reader_({.loop = loop,
               .waiter = *this,
               .image = image,
               .read_only = options.read_only || image.read_only(),
               .socket = fd_,
               .ledger = ledger_,
               .slots = slots_,
               .writer = writer_,
               .stats = stats_,
               .counters = counters}) {
  ++loop_.sessions;
  ++loop_.serving;
}

Session::~Session() { --loop_.sessions; }

void Session::start() {
  expect(loop_.here(), "a session is used on its own io thread");
  loop_.budget.join(*this, image_.key().fsid);
  if (inherited_) resume();
  wait_readable();
  destroy_if_idle();
}

void Session::wait_readable() {
  if (waits_readable_ || !serving()) return;
  waits_readable_ = true;
  stream_.async_wait(asio::posix::descriptor_base::wait_read, [this](boost::system::error_code) {
    waits_readable_ = false;
    if (reader_.leaving() && reader_.has_left()) stop(State::closed, 0);
    if (serving()) turn();
    destroy_if_idle();
  });
}

void Session::wait_writable() {
  waits_writable_ = true;
  stream_.async_wait(asio::posix::descriptor_base::wait_write, [this](boost::system::error_code) {
    waits_writable_ = false;
    batch_ended();
  });
}

/// Resume later: the caller that gave bytes back is in the middle of its own work.
void Session::budget_freed() {
  if (waits_turn_) return;
  waits_turn_ = true;
  asio::post(loop_.io().get_executor(), [this] {
    waits_turn_ = false;
    if (reader_.has_no_room() && serving()) turn();
    destroy_if_idle();
  });
}

void Session::batch_ended() {
  flush();
  if (reader_.may_have_room() && serving()) turn();
  destroy_if_idle();
}

/// Reads and answers as long as there is progress.
void Session::turn() {
  using Halt = RequestReader::Halt;
  do {
    reader_.begin_turn();
    while (Slot* const slot = reader_.next()) submit(*slot, reader_.read_us());
    if (reader_.halt() == Halt::broken) stop(State::closed, 0);
    // A client that has ended its stream still gets the replies that are ready.
    flush();
    if (reader_.halt() == Halt::closed) stop(State::closed, 0);
  } while (reader_.may_have_room() && serving());
  if (reader_.halt() == Halt::no_bytes || reader_.leaving()) wait_readable();
}

// --- Operations of the image ---------------------------------------------------------------------

/// `read_us`: when its request was read.
void Session::submit(Slot& slot, std::int64_t read_us) {
  counters_.add_request(static_cast<std::size_t>(slot.request.command));
  slots_.begin(slot, read_us);
  slow_.watch(read_us);
  slot.piece_left = slot.request.length;
  slot.piece_at = slot.request.offset;
  slot.tells_loss = lost_cache_.concerns(slot.request);
  const Request& request = slot.request;
  switch (request.command) {
    case Command::read:
      return image_.read(slot, request.offset, {slot.buffer, request.length});
    // FUA needs nothing more: an acknowledged write is stored.
    case Command::write:
      return image_.write(slot, request.offset, {slot.buffer, request.length});
    case Command::flush:
      return image_.needs_flush() ? image_.flush(slot) : slot.done(&slot, 0);
    case Command::trim:
    case Command::write_zeroes:
      return submit_piece(slot);
    case Command::disconnect:
      break;
  }
}

void Session::submit_piece(Slot& slot) {
  slot.piece_at += slot.piece_bytes;
  slot.piece_bytes = std::min(slot.piece_left, kPiece);
  slot.piece_left -= slot.piece_bytes;
  slots_.next_piece(slot);
  if (slot.request.command == Command::trim) return image_.discard(slot, slot.piece_at, slot.piece_bytes);
  image_.write_zeroes(slot, slot.piece_at, slot.piece_bytes);
}

/// Starts the next piece of a request, if it has more.
bool Session::submit_next_piece(Slot& slot) {
  if (!slot.request.in_pieces()) return false;
  const bool more = slot.piece_left > 0 && slot.result >= 0 && serving();
  if (more) submit_piece(slot);
  return more;
}

void Session::finish(Slot& slot) {
  if (submit_next_piece(slot)) return;
  slots_.end(slot);
  loop_.at_batch_end(*this);
  const ErrorClass found = judge(slot.result);
  if (found.hold && serving()) {
    counters_.add(device::Count::links_held);
    const char* hint =
        "the kernel repeats the request on the next link; if the error persists, `corbd fail` gives the volume up";
    if (found.doubtful)
      log::error("nbd.doubtful", {{"image", image_.key().text()}, {"errno", -slot.result}, {"hint", hint}});
    else
      log::warning("nbd.held", {{"image", image_.key().text()}, {"errno", -slot.result}});
    stop(found.doubtful ? State::closed : State::held, -slot.result);
  }
  if (!serving()) return reader_.release(slot);
  const std::uint32_t error = found.error == 0 && slot.tells_loss ? tell_loss() : found.error;
  const std::int64_t took_us = loop_.batch_us() - slot.began_us;
  loop_.took(took_us);
  stats_.ended(slot.request, took_us, error != 0);
  slow_.ended(slot, took_us);
  if (slot.sent > 0) {
    if (writer_.answered_alone(slot)) reader_.release(slot);
    return;
  }
  if (found.error != 0) counters_.add(device::Count::image_errors);
  writer_.answer(slot, error);
}

/// Logs the loss once, and returns the error. The image has carried the request out; the error is about writes that
/// were acknowledged before this server came.
std::uint32_t Session::tell_loss() {
  if (!std::exchange(loss_told_, true))
    log::warning(
        "nbd.loss_told",
        {{"volume", name_},
         {"image", image_.key().text()},
         {"effect",
          "a flush was answered with an I/O error, because rbd-nbd died with writes that its cache had "
          "acknowledged and not stored. So is every flush until the volume is unstaged, or its loss accepted"}});
  return wire_eio;
}

/// Sends replies as long as the socket takes them.
void Session::flush() {
  using Outcome = ReplyWriter::Outcome;
  while (serving() && !waits_writable_ && !writer_.empty()) {
    const auto [outcome, out] = writer_.send();
    reader_.release_all(out);
    if (outcome == Outcome::waits) return;
    if (outcome == Outcome::full) wait_writable();
    if (outcome == Outcome::failed) stop(State::closed, 0);
  }
}

}  // namespace corbd::nbd
