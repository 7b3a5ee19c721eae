// The server's side of NBD's fixed-newstyle handshake (doc/proto.md of the NBD project), so that any client can drive a
// session. Production code has none: the kernel begins with transmission.
#pragma once

#include <cstdint>

namespace corbd::test {

/// Offers one export, under any name. Structured replies and everything else optional are refused. Blocks; true if the
/// transmission begins on this very socket, false if the client left.
bool newstyle_handshake(int socket, std::uint64_t size, bool read_only = false);

}  // namespace corbd::test
