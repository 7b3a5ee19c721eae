// Messages with descriptors over a SOCK_SEQPACKET socket (SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"

namespace corbd {

/// A message with its descriptors, which it owns.
struct FdMessage {
  std::string bytes;
  std::vector<Fd> descriptors;
};

/// Whether a call may block, for as long as the socket's time-outs allow.
enum class Waits { yes, no };

/// not_found: the other side has ended. unavailable: it does not read, or the call would have to wait too long.
result<> send_message(int socket, std::string_view bytes, std::span<const int> descriptors, Waits waits);
/// not_found: the other side has ended. timed_out: nothing came within the socket's time. exhausted: the message is
/// longer than `most_bytes`, or not all of its descriptors could be taken.
result<FdMessage> receive_message(int socket, std::size_t most_bytes, Waits waits);

}  // namespace corbd
