#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "passing.hpp"

namespace corbd::handover {

Conversation::Conversation(executor control, Clock& clock, Fd socket)
    : clock_(clock), stream_(std::move(control), socket.release()) {}

task<result<Message>> Conversation::hear(Until until) {
  while (stream_.is_open()) {
    auto got = receive(stream_.native_handle(), Waits::no);
    if (got || got.error().code != errc::timed_out || clock_.now() >= until.deadline) co_return got;
    Clock::TimerId limit = 0;
    if (until.deadline != time_point::max()) limit = clock_.schedule(until.deadline, [this] { stream_.cancel(); });
    boost::system::error_code ignored;
    co_await stream_.async_wait(asio::posix::descriptor_base::wait_read,
                                asio::redirect_error(asio::use_awaitable, ignored));
    clock_.cancel(limit);
  }
  co_return Error{errc::cancelled, "the conversation with the other agent is over"};
}

task<result<ReceivedMessage>> Conversation::next_message(Until until) {
  auto message = co_await hear(until);
  if (!message) co_return message.error();
  auto peer_message = unpack_message(message->text);
  if (!peer_message) co_return peer_message.error();
  if (peer_message->has_descriptor() != static_cast<bool>(message->descriptor))
    co_return Error{errc::internal, "the other agent's message " + message->text + " came " +
                                        (message->descriptor ? "with" : "without") + " a descriptor"};
  co_return ReceivedMessage{std::move(*peer_message), std::move(message->descriptor)};
}

result<> Conversation::say(const PeerMessage& peer_message, const Fd* descriptor) {
  if (!stream_.is_open()) return Error{errc::cancelled, "the conversation with the other agent is over"};
  return send(stream_.native_handle(), pack(peer_message), descriptor, Waits::no);
}

void Conversation::end() {
  boost::system::error_code ignored;
  static_cast<void>(stream_.close(ignored));
}

}  // namespace corbd::handover
