#include "session.hpp"

#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include <boost/asio/post.hpp>

#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {
namespace {

constexpr int kReadsPerTurn = 16;  // then it is the other devices' turn
// The kernel's nbd has 128 requests per socket at most. We do not read from a peer with more unanswered requests.
constexpr std::size_t kMaxRequests = 256;
// A request that waits for longer waits for a cluster that may never answer.
constexpr std::chrono::seconds kStuck{1};
// The kernel sends discards of 4 GiB, which are 1,024 objects of 4 MiB. librados allows that many operations in all
// (objecter_inflight_ops), and blocks beyond. In pieces, one after another, a discard takes 64 of them.
constexpr std::uint32_t kPiece = 256u << 20;

/// Cheap, and exact to a tick of the kernel.
std::int64_t coarse_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

Session::Session(IoLoop& loop, image::Image& image, bool read_only, Fd socket, Notices notices, Probe& probe)
    : loop_(loop),
      image_(image),
      read_only_(read_only || image.read_only()),
      notices_(std::move(notices)),
      probe_(probe),
      stream_(loop.io().get_executor(), socket.get()),
      fd_(socket.release()) {
  ++loop_.sessions;
}

Session::~Session() { --loop_.sessions; }

void Session::start() {
  wait_readable();
  settle();
}

// --- Reading ------------------------------------------------------------------------------------

void Session::wait_readable() {
  if (waits_readable_ || !serving()) return;
  waits_readable_ = true;
  stream_.async_wait(asio::posix::descriptor_base::wait_read, [this](boost::system::error_code) {
    waits_readable_ = false;
    if (leaving_) after_disconnect();
    if (serving()) turn();
    settle();
  });
}

/// Reads and answers as long as something moves.
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
    emptied = static_cast<std::size_t>(got) < asked;
    framer_.arrived(static_cast<std::size_t>(got));
  }
}

ssize_t Session::receive(std::size_t& asked) {
  iovec into[2];
  msghdr message{};
  message.msg_iov = into;
  // A draining session leaves the next request in the socket, for the next server.
  message.msg_iovlen = framer_.room(into, draining_);
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) asked += into[i].iov_len;
  return ::recvmsg(fd_, &message, MSG_DONTWAIT);
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
    case Framer::Kind::filled:
      submit(*std::exchange(filling_, nullptr));
      return Read::more;
    case Framer::Kind::disconnect:
      leaving_ = true;
      if (!framer_.at_boundary()) stop(State::closed, 0);
      return Read::ended;
    case Framer::Kind::broken:
      Probe::add(probe_.broken);
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
  if (slots_used_ == kMaxRequests) return false;
  const Request& request = pending.request;
  const bool nothing_to_do = request.length == 0 && request.command != Command::flush;
  if (pending.error != 0 || nothing_to_do) {
    if (pending.error != 0) Probe::add(probe_.refused);
    answer(take_slot(request), pending.error);
    return true;
  }
  const std::size_t bytes = request.has_data() ? Buffers::rounded(request.length) : 0;
  if (bytes > 0 && !loop_.budget.take(*this, bytes, budget_used_)) {
    Probe::add(probe_.budget_waits);
    loop_.budget.wait(*this, bytes);
    return false;
  }
  budget_used_ += bytes;
  Slot& slot = take_slot(request);
  if (bytes > 0) slot.buffer = loop_.buffers.take(request.length);
  if (request.has_payload()) {
    framer_.payload_into(slot.buffer);
    filling_ = &slot;
  } else {
    submit(slot);
  }
  return true;
}

/// Do not go on inside the call that gave bytes back: its caller is in the middle of its own work.
void Session::budget_freed() {
  if (waits_turn_) return;
  waits_turn_ = true;
  asio::post(loop_.io().get_executor(), [this] {
    waits_turn_ = false;
    if (blocked_ && serving()) turn();
    settle();
  });
}

/// The end of the stream, or anything else that a client sends after its goodbye.
void Session::after_disconnect() {
  char byte;
  const ssize_t got = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got >= 0 || errno != EAGAIN) stop(State::closed, 0);
}

// --- Operations ---------------------------------------------------------------------------------

Session::Slot& Session::take_slot(const Request& request) {
  if (free_slots_ == nullptr) free_slots_ = slots_.emplace_back(std::make_unique<Slot>(*this)).get();
  Slot& slot = *std::exchange(free_slots_, free_slots_->next_free);
  ++slots_used_;
  slot.request = request;
  return slot;
}

void Session::submit(Slot& slot) {
  Probe::add(probe_.requests.at(static_cast<std::size_t>(slot.request.command)));
  note_begin(slot);
  slot.piece_left = slot.request.length;
  slot.piece_offset = slot.request.offset;
  const Request& request = slot.request;
  switch (request.command) {
    case Command::read:
      return image_.read(slot, request.offset, {slot.buffer, request.length});
    // FUA asks for nothing more: an acknowledged write is stored.
    case Command::write:
      return image_.write(slot, request.offset, {slot.buffer, request.length});
    case Command::flush:
      return image_.flush(slot);
    case Command::trim:
    case Command::write_zeroes:
      return submit_piece(slot);
    case Command::disconnect:
      break;
  }
}

void Session::note_begin(Slot& slot) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  slot.began_ms = coarse_ms();
  slot.older = std::exchange(newest_, &slot);
  (slot.older != nullptr ? slot.older->newer : oldest_) = &slot;
  if (slot.older == nullptr) vital_->oldest_ms.store(slot.began_ms, std::memory_order_relaxed);
}

void Session::note_end(Slot& slot) {
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  (slot.older != nullptr ? slot.older->newer : oldest_) = slot.newer;
  (slot.newer != nullptr ? slot.newer->older : newest_) = slot.older;
  if (slot.older == nullptr)
    vital_->oldest_ms.store(oldest_ != nullptr ? oldest_->began_ms : 0, std::memory_order_relaxed);
  slot.older = slot.newer = nullptr;
}

duration Vital::oldest() const {
  const std::int64_t began = oldest_ms.load(std::memory_order_relaxed);
  return began == 0 ? duration::zero() : std::chrono::milliseconds(coarse_ms() - began);
}

std::optional<time_point> Vital::first_answer() const {
  const std::int64_t at = first_answer_ms.load(std::memory_order_relaxed);
  if (at == 0) return std::nullopt;
  return time_point(std::chrono::milliseconds(at));  // of the same clock
}

void Vital::answered() {
  if (first_answer_ms.load(std::memory_order_relaxed) == 0)
    first_answer_ms.store(coarse_ms(), std::memory_order_relaxed);
}

result<> may_resize(const Vital& vital, duration waited) {
  if (vital.state.load(std::memory_order_acquire) != Vital::State::serving)
    return Error{errc::unavailable, "its link is down"};
  if (vital.oldest() > kStuck) return Error{errc::unavailable, "a request waits for the cluster"};
  if (waited > kStuck)
    return Error{errc::unavailable,
                 "other commands to the kernel took so long that nobody knows any more whether the cluster answers"};
  return {};
}

void Session::submit_piece(Slot& slot) {
  const std::uint32_t piece = std::min(slot.piece_left, kPiece);
  const std::uint64_t offset = slot.piece_offset;
  slot.piece_offset += piece;
  slot.piece_left -= piece;
  if (slot.request.command == Command::trim) return image_.discard(slot, offset, piece);
  image_.write_zeroes(slot, offset, piece);
}

void Session::finish(Slot& slot) {
  const bool in_pieces = slot.request.command == Command::trim || slot.request.command == Command::write_zeroes;
  if (in_pieces && slot.piece_left > 0 && slot.result >= 0 && serving()) return submit_piece(slot);
  note_end(slot);
  loop_.at_batch_end(*this);
  const Verdict verdict = judge(slot.result);
  if (verdict.hold && serving()) {
    Probe::add(probe_.held);
    const char* hint =
        "the kernel repeats the request on the next link; if the error persists, `corbd fail` gives the volume up";
    if (verdict.doubtful)
      log::error("nbd.doubtful", {{"image", image_.key().text()}, {"errno", -slot.result}, {"hint", hint}});
    else
      log::warning("nbd.held", {{"image", image_.key().text()}, {"errno", -slot.result}});
    stop(verdict.doubtful ? State::closed : State::held, -slot.result);
  }
  if (!serving()) return release(slot);
  if (verdict.error != 0) Probe::add(probe_.image_errors);
  answer(slot, verdict.error);
}

void Session::release(Slot& slot) {
  if (slot.buffer != nullptr) {
    const std::size_t bytes = Buffers::rounded(slot.request.length);
    loop_.give_buffer(std::exchange(slot.buffer, nullptr), slot.request.length);
    budget_used_ -= bytes;
    loop_.budget.give(bytes);
  }
  slot.next_free = std::exchange(free_slots_, &slot);
  --slots_used_;
  freed_ = true;
}

}  // namespace corbd::nbd
