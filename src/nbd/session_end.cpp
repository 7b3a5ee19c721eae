// The end of a session: drain, handover and detach.
#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "corbd/core/expect.hpp"
#include "slot.hpp"

namespace corbd::nbd {
namespace {

// For AF_UNIX the sender's buffer counts. This much holds one large request and several small ones.
constexpr int kSendBuffer = 4 << 20;

}  // namespace

/// Ends the state `serving`, once. Nothing is sent from then on. Requests under way end without a reply. The kernel
/// repeats them, unless the link is handed to the next server.
void Session::end(State state, int error, bool given) {
  error_.store(error, std::memory_order_release);
  // Do this before the state changes, without a gap in between: IoLoops::all_ended() reads both.
  ++loop_.ending;
  --loop_.serving;
  Reply* const unsent = writer_.close(state);
  boost::system::error_code ignored;
  stream_.cancel(ignored);
  slow_.stop();
  if (!given)
    hang_up();
  else if (notices_.ended)
    notices_.ended();
  --loop_.ending;
  loop_.budget.forget(*this);
  reader_.close();
  reader_.release_all(unsent);
  if (notices_.stopped) notices_.stopped();
}

/// The keeper has the socket until the kernel has seen the end. If this process dies first, its successor goes on with
/// the end, and not with the link.
void Session::hang_up() {
  ledger_.close();
  ending_ = std::make_shared<Ending>(loop_, std::move(stream_));
  // This object may be gone by then.
  auto ended = [fd_store = std::exchange(kept_, false) ? loop_.fd_store : nullptr, token = ledger_.token(),
                inherited = std::shared_ptr<const InheritedSession>(std::move(inherited_)), told = notices_.ended] {
    if (fd_store != nullptr) static_cast<void>(fd_store->drop(token));
    if (inherited) static_cast<void>(inherited->fd_store->drop(inherited->token));
    if (told) told();
  };
  ending_->begin(std::move(ended));
}

void Session::stop(State state, int error) {
  if (serving()) end(state, error, false);
}

Fd Session::hand_over() {
  expect(loop_.here(), "a session is used on its own io thread");
  Fd given;
  if (reader_.draining() && serving() && quiet()) given = Fd(::fcntl(fd_, F_DUPFD_CLOEXEC, 3));
  // The keeper drops it before another process has the socket.
  if (given && !let_go()) given.reset();
  if (given) end(State::closed, 0, true);
  destroy_if_idle();
  return given;
}

void Session::shut() {
  expect(loop_.here(), "a session is used on its own io thread");
  stop(State::closed, 0);
  destroy_if_idle();
}

void Session::hold() {
  expect(loop_.here(), "a session is used on its own io thread");
  stop(State::held, ESHUTDOWN);
  destroy_if_idle();
}

void Session::drain(std::function<void()> told) {
  expect(loop_.here(), "a session is used on its own io thread");
  reader_.set_draining(true);
  drained_ = std::move(told);
  if (serving() && !reader_.has_no_room()) turn();
  destroy_if_idle();
}

void Session::undrain() {
  expect(loop_.here(), "a session is used on its own io thread");
  reader_.set_draining(false);
  drained_ = nullptr;
  if (serving() && !reader_.has_no_room()) turn();
  destroy_if_idle();
}

void Session::detach(std::unique_ptr<Session> self) {
  expect(loop_.here(), "a session is used on its own io thread");
  self_ = std::move(self);
  notices_ = {};
  drained_ = nullptr;
  stop(State::closed, 0);
  destroy_if_idle();
}

bool Session::quiet() const { return in_flight() == 0 && writer_.empty() && reader_.at_boundary(); }

void Session::destroy_if_idle() {
  if (reader_.leaving() && serving() && quiet()) stop(State::closed, 0);
  if (drained_ && (serving() ? quiet() : in_flight() == 0)) std::exchange(drained_, nullptr)();
  if (serving() || in_flight() > 0) return;
  if (!told_idle_) {
    told_idle_ = true;
    if (notices_.idle) notices_.idle();
  }
  if (self_ && !waits_readable_ && !waits_writable_ && !waits_turn_ && !slow_.waits()) {
    const auto gone = std::move(self_);
  }
}

void enlarge_send_buffer(int socket) {
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &kSendBuffer, sizeof kSendBuffer) != 0)
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
}

result<std::pair<Fd, Fd>> make_socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return Error{errc::exhausted, std::string("making a socket pair: ") + std::strerror(errno)};
  for (const int fd : fds) enlarge_send_buffer(fd);
  return std::pair{Fd(fds[0]), Fd(fds[1])};
}

}  // namespace corbd::nbd
