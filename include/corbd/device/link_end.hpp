// The one way to end a link that the kernel may still use (docs/devices.md, "Ending a link").
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "corbd/core/time.hpp"

namespace corbd::device {

/// Ends our side, and lets the kernel send the rest of what it is in the middle of: from Linux 6.14 on it fails a
/// request that is sent in part when the socket takes no more. Then throw away the input until its end. Whoever else
/// has the socket must not be able to read on: bytes of the stream are missing from now on. Does not wait.
void begin_end(int socket);

enum class Input {
  none,   ///< nothing more is there now
  more,   ///< other sockets may be looked at first
  ended,  ///< the kernel has ended its side: the link is dead, and the socket may be closed
};
/// Throws away what is there. Does not wait.
Input discard_input(int socket);

/// The kernel does not end its side: it sees a dead link all the same, and may fail the request that it is sending.
void cut(int socket);
void log_cut(std::size_t links);

/// As long as the kernel may take for the end of its side.
inline constexpr duration kEndsWithin = std::chrono::seconds(10);

/// Ends all of these links, and returns when the kernel has ended its side of each. What takes longer than the time is
/// cut.
void end_links(std::span<const int> sockets, duration within = kEndsWithin);

}  // namespace corbd::device
