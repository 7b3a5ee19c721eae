// What two agents say to each other: JSON objects, one in each message of a SOCK_SEQPACKET socket. Their sockets go
// beside them (SCM_RIGHTS), in the same order.
//   next: {"protocol":1,"version":"0.1.0","records":1,"state":"<device>:<inode>"}
//   serving: {"answer":"yes"} or {"answer":"no","why":"..."}
//   serving, as often as it likes: {"ready":true}, which the next one sends back
//   serving, as often as needed: {"links":[{"volume":"...","device":5}]} with as many sockets
//   serving, last: {"lock":true} with the lock of the state folder
// An agent of another protocol is refused before anything moves.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corbd/handover/handover.hpp"

namespace corbd::handover {

inline constexpr int kProtocol = 1;

struct Hello {
  int protocol = kProtocol;
  Side side;
};
std::string pack(const Hello& hello);
result<Hello> unpack_hello(std::string_view message);

/// Why the next agent gets nothing from this one.
std::optional<std::string> refusal(const Hello& next, const Side& own);
std::string pack_answer(const std::optional<std::string>& refusal);
/// failed_precondition with the reason of a refusal.
result<> unpack_answer(std::string_view message);

/// Links without their sockets, or the lock, or the question whether the next agent is ready.
struct Part {
  std::vector<std::pair<std::string, std::uint32_t>> links;
  bool lock = false;
  bool ready = false;
  std::size_t sockets() const { return lock ? 1 : links.size(); }
};
std::string pack(const Part& part);
/// The sockets that must have come with it are counted by its reader.
result<Part> unpack_part(std::string_view message);

}  // namespace corbd::handover
