// Messages between an agent and its keeper. Both run the same program, so they are plain memory. The keeper's first
// message is its protocol's number, which has the same form in every protocol.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/fd_message.hpp"
#include "corbd/core/result.hpp"

namespace corbd::keeper {

/// deaths: from the keeper, their number in `device`, the last one's time in `token` (ns) and its signal in
/// `instead_of`. pause: from the keeper, Deaths::pause in `token` (ns).
/// protocol: from the keeper, kProtocol in `device`.
/// listener: its path as the text, StoredListener::registered in `device`. drop_listener: its path.
enum class Kind : std::uint32_t { link, memory, drop, deaths, pause, end, protocol, listener, drop_listener };

struct KeeperMessage {
  Kind kind = Kind::end;
  std::uint32_t device = 0;
  std::uint64_t token = 0, instead_of = 0;
};

struct Heard {
  KeeperMessage note;
  std::string backend;
  std::vector<Fd> descriptors;
};

/// Does not wait. unavailable: the other side does not read. not_found: it has ended.
result<> tell(int socket, const KeeperMessage& note, const std::string& backend, std::span<const int> descriptors);
/// timed_out: nothing to read. not_found: the other side has ended. Any other error: the message is not one of ours.
result<Heard> hear(int socket, Waits waits);

}  // namespace corbd::keeper
