#include "session.hpp"

#include <boost/asio/post.hpp>

#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {

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
