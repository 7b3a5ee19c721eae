// Sends and receives messages with a descriptor over a SOCK_SEQPACKET socket.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/fd.hpp"
#include "corbd/core/fd_message.hpp"
#include "corbd/core/result.hpp"
#include "messages.hpp"

namespace corbd::handover {

struct Message {
  std::string text;
  Fd descriptor;  ///< invalid: the message has none
};

/// unavailable: the call would have to wait too long, or the other side has ended.
result<> send(int socket, std::string_view text, const Fd* descriptor = nullptr, Waits waits = Waits::yes);
/// not_found: the other side has ended. timed_out: nothing came within the socket's time.
result<Message> receive(int socket, Waits waits = Waits::yes);

/// Returns the user of the process at the other end.
result<unsigned> user_of_peer(int socket);
void set_timeouts(int socket, int seconds);

}  // namespace corbd::handover
