// The only way to end a link that the kernel may still use (docs/devices.md, "Ending a link").
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "corbd/core/time.hpp"

namespace corbd::device {

/// Ends our side, and lets the kernel send the rest of a request that it has begun: from Linux 6.14 on it fails a
/// request that is sent in part when the socket takes no more. Then throw away the input until its end. Nobody else who
/// has the socket must be able to read on, because bytes of the stream are missing from now on. Does not wait.
void begin_end(int socket);

enum class Input {
  none,   ///< nothing more is readable now
  more,   ///< more may be readable; other sockets may be served first
  ended,  ///< the kernel has ended its side: the link is dead, and the socket may be closed
};
/// Throws away the readable input. Does not wait.
Input discard_input(int socket);

/// Cuts a link whose kernel side does not end: the kernel sees a dead link all the same, and may fail the request that
/// it is sending.
void cut(int socket);
void log_cut(std::size_t links);

/// Time that the kernel gets to end its side.
inline constexpr duration kEndsWithin = std::chrono::seconds(10);

/// Ends all of these links, and returns when the kernel has ended its side of each. Links that take longer than the
/// time are cut.
void end_links(std::span<const int> sockets, duration within = kEndsWithin);

}  // namespace corbd::device
