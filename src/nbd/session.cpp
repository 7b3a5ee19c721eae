#include "session.hpp"

#include <sys/socket.h>

#include <cerrno>

#include <boost/asio/post.hpp>

#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {
namespace {

constexpr int kReadsPerTurn = 16;  // after this many it is the other devices' turn
// The kernel's nbd has 128 requests per socket at most. We do not read from a peer with more unanswered requests.
constexpr std::size_t kMaxRequests = ledger::kSlots;

}  // namespace

Session::Session(IoLoop& loop, image::BlockImage& image, const device::ServeOptions& options, Fd socket,
                 Notices notices, Counters& counters, std::unique_ptr<InheritedSession> inherited)
    : loop_(loop),
      image_(image),
      read_only_(options.read_only || image.read_only()),
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
      framer_(ledger_.input()) {
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

// --- Reading ------------------------------------------------------------------------------------

void Session::wait_readable() {
  if (waits_readable_ || !serving()) return;
  waits_readable_ = true;
  stream_.async_wait(asio::posix::descriptor_base::wait_read, [this](boost::system::error_code) {
    waits_readable_ = false;
    if (leaving_) after_disconnect();
    if (serving()) turn();
    destroy_if_idle();
  });
}

/// Reads and answers as long as there is progress.
void Session::turn() {
  Read ended;
  do {
    blocked_ = freed_ = false;
    ended = read_on();
    blocked_ = ended == Read::blocked;
    flush();
  } while (blocked_ && freed_ && serving());
  // After the client's goodbye we expect only the end of the stream.
  if (ended == Read::more || leaving_) wait_readable();
}

/// more: the socket has no more bytes now, or it is another device's turn.
Session::Read Session::read_on() {
  bool emptied = false;
  read_us_ = now_us();
  for (int reads = 0;; ++reads) {
    const Read fed = feed();
    if (fed != Read::more) return fed;
    if (draining_ && framer_.at_boundary()) return Read::ended;
    if (emptied || reads == kReadsPerTurn) return Read::more;
    std::size_t asked = 0;
    const ssize_t got = receive(asked);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Read::more;
    if (got <= 0) {
      flush();
      stop(State::closed, 0);
      return Read::ended;
    }
    read_us_ = now_us();
    emptied = static_cast<std::size_t>(got) < asked;
    framer_.arrived(static_cast<std::size_t>(got));
    publish_reader();
  }
}

ssize_t Session::receive(std::size_t& asked) {
  iovec into[2];
  // A draining session leaves the next request in the socket, for the next server.
  const std::size_t parts = framer_.room(into, draining_);
  for (std::size_t i = 0; i < parts; ++i) asked += into[i].iov_len;
  publish_reader();
  return ledger_.receive(fd_, {into, parts});
}

/// Starts every complete request.
Session::Read Session::feed() {
  while (serving()) {
    if (pending_) {
      if (!begin(*pending_)) return Read::blocked;
      pending_.reset();
    }
    const Framer::Event event = framer_.next({image_.size(), read_only_, loop_.max_request()});
    if (event.kind == Framer::Kind::starved) return Read::more;
    if (const Read taken = take(event); taken != Read::more) return taken;
  }
  return Read::ended;
}

Session::Read Session::take(const Framer::Event& event) {
  switch (event.kind) {
    case Framer::Kind::request:
    case Framer::Kind::refused:
      pending_ = {event.request, event.error};
      return Read::more;
    case Framer::Kind::filled: {
      Slot& slot = *std::exchange(filling_, nullptr);
      publish_reader();
      submit(slot);
      return Read::more;
    }
    case Framer::Kind::disconnect:
      leaving_ = true;
      if (!framer_.at_boundary()) stop(State::closed, 0);
      return Read::ended;
    case Framer::Kind::broken:
      counters_.add(device::Count::links_broken);
      log::warning("nbd.broken_stream", {{"image", image_.key().text()}});
      stop(State::closed, 0);
      return Read::ended;
    case Framer::Kind::starved:
      break;
  }
  return Read::more;
}

/// Returns false if there is no room now.
bool Session::begin(const Pending& pending) {
  if (slots_.used() == kMaxRequests) return false;
  const Request& request = pending.request;
  const bool nothing_to_do = request.length == 0 && request.command != Command::flush;
  if (pending.error != 0 || nothing_to_do) {
    if (pending.error != 0) counters_.add(device::Count::refused);
    Slot& slot = slots_.take(request);
    ledger_.taken(slot.number, request, Arena::kElsewhere);
    writer_.answer(slot, pending.error);
    publish_reader();
    return true;
  }
  const std::size_t bytes = request.has_data() ? Buffers::rounded(request.length) : 0;
  if (bytes > 0 && !loop_.budget.take(*this, bytes, budget_used_)) {
    counters_.add(device::Count::budget_waits);
    loop_.budget.wait(*this, bytes);
    stats_.stands_still();
    return false;
  }
  stats_.reads_on();
  budget_used_ += bytes;
  Slot& slot = slots_.take(request);
  if (bytes > 0) slot.buffer = loop_.buffers.take(request.length);
  if (request.has_payload()) {
    framer_.payload_into(slot.buffer);
    filling_ = &slot;
  }
  ledger_.taken(slot.number, request, loop_.offset(slot.buffer));
  publish_reader();
  if (filling_ != &slot) submit(slot);
  return true;
}

/// Resume later: the caller that gave bytes back is in the middle of its own work.
void Session::budget_freed() {
  if (waits_turn_) return;
  waits_turn_ = true;
  asio::post(loop_.io().get_executor(), [this] {
    waits_turn_ = false;
    if (blocked_ && serving()) turn();
    destroy_if_idle();
  });
}

// --- Replies ------------------------------------------------------------------------------------

void Session::flush() {
  while (serving() && !waits_writable_ && !writer_.empty()) {
    const auto [outcome, out] = writer_.send();
    release_all(out);
    switch (outcome) {
      case ReplyWriter::Outcome::progress:
        break;
      case ReplyWriter::Outcome::full:
        wait_writable();
        break;
      case ReplyWriter::Outcome::waits:
        return;
      case ReplyWriter::Outcome::failed:
        stop(State::closed, 0);
        break;
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

/// Handles the end of the stream, or other bytes that a client sends after its goodbye.
void Session::after_disconnect() {
  char byte;
  const ssize_t got = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got >= 0 || errno != EAGAIN) stop(State::closed, 0);
}

}  // namespace corbd::nbd
