// Messages between two agents: JSON objects, one in each message of a SOCK_SEQPACKET socket. A descriptor goes beside
// its message (SCM_RIGHTS).
//   next: {"protocol":2,"version":"0.1.0","records":1,"state":"<device>:<inode>"}
//     and "keeper":true, if its parent process is its keeper; "listeners":true, if it takes over listening sockets;
//     "node" and "driver": its --nodeid and --drivername
//   serving: {"answer":"yes"} or {"answer":"no","why":"..."}
//   serving, any number of times: {"ready":true}
//   next, when it is: {"ready":true,"cold":["..."]} with the volumes whose images it could not open
//   serving: {"begins":true}. It goes on serving devices, and nothing else
//   serving: {"lock":true} with the lock of the state directory. From now on it writes no record
//   next: {"loaded":true} once it has the records
//   serving, for each socket on which it answered callers: {"listener":{"registered":false}} with the socket;
//     "registered": it is the registration socket, and kubelet has registered the driver
//   serving, for each link: {"link":{"volume":"...","device":5}} with its socket
//   next, for each link: {"served":5} once it serves the device, or has failed to
//     Both have "kind" beside the device's number if it is not of the first kind of device::kTraits
//   serving, last: {"end":true}
// An agent of another protocol is refused before anything moves.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/handover/handover.hpp"
#include "corbd/handover/values.hpp"

namespace corbd::handover {

struct Hello {
  int protocol = kProtocol;
  Side side;
};
std::string pack(const Hello& hello);
result<Hello> unpack_hello(std::string_view message);

/// Returns why the next agent gets nothing from this one; nothing: it may take over.
std::optional<std::string> refusal(const Hello& next, const Side& own);
std::string pack_answer(const std::optional<std::string>& refusal);
/// failed_precondition carries the reason of a refusal.
result<> unpack_answer(std::string_view message);

/// Packs any message after the answer.
std::string pack(const PeerMessage& peer_message);
result<PeerMessage> unpack_message(std::string_view message);

}  // namespace corbd::handover
