// Messages with descriptors over a SOCK_SEQPACKET socket. Blocking, as long as the socket's time-outs allow.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"

namespace corbd::handover {

/// A message has no more descriptors than this. The kernel takes 253 (SCM_MAX_FD).
inline constexpr std::size_t kMostDescriptors = 64;

struct Message {
  std::string text;
  std::vector<Fd> descriptors;
};

result<> send(int socket, std::string_view text, std::span<const int> descriptors = {});
/// not_found: the other side has ended. timed_out: nothing came within the socket's time.
result<Message> receive(int socket);

/// The user of the process at the other end.
result<unsigned> user_of_peer(int socket);
void set_timeouts(int socket, int seconds);

}  // namespace corbd::handover
