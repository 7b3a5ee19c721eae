// Ends a socket's wait when the time is up or the caller leaves.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "corbd/core/wait.hpp"

namespace corbd::http {

/// Closes the socket. A wait for it then ends with an error, which is a value. Control thread.
class SocketCutoff {
 public:
  SocketCutoff(Clock& clock, std::shared_ptr<asio::ip::tcp::socket> socket, Until until)
      : clock_(clock), scope_(until.scope), state_(std::make_shared<State>(State{std::move(socket), Waited::ready})) {
    if (until.deadline != time_point::max())
      timer_ = clock.schedule(until.deadline, [state = state_] { state->end(Waited::deadline); });
    if (scope_ == nullptr) return;
    if (scope_->cancelled()) state_->end(Waited::cancelled);
    hook_ = scope_->on_cancel([state = state_] { state->end(Waited::cancelled); });
  }
  ~SocketCutoff() {
    state_->socket.reset();
    if (timer_) clock_.cancel(*timer_);
    if (scope_ != nullptr) scope_->forget(hook_);
  }
  SocketCutoff(const SocketCutoff&) = delete;
  SocketCutoff& operator=(const SocketCutoff&) = delete;
  /// ready: it did nothing.
  Waited how() const { return state_->how; }

 private:
  struct State {
    std::shared_ptr<asio::ip::tcp::socket> socket;
    Waited how;
    void end(Waited why) {
      if (!socket || how != Waited::ready) return;
      how = why;
      boost::system::error_code ignored;
      socket->close(ignored);
    }
  };
  Clock& clock_;
  CancelScope* scope_;
  std::shared_ptr<State> state_;
  std::optional<Clock::TimerId> timer_;
  CancelScope::Hook hook_;
};

}  // namespace corbd::http
