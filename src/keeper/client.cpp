// Implements the agent's end of the conversation.
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

#include "corbd/keeper/keeper.hpp"
#include "wire.hpp"

namespace corbd::keeper {
namespace {

// Room for the messages of all links of a node at once, of some 2 KiB each.
constexpr int kSendBuffer = 8 << 20;
// The keeper has sent everything before the agent begins.
constexpr timeval kSaidWithin{5, 0};

result<> check_protocol(const KeeperMessage& first) {
  if (first.kind == Kind::protocol && first.device == kProtocol) return {};
  const std::string theirs = first.kind == Kind::protocol ? "protocol " + std::to_string(first.device) : "no protocol";
  return Error{errc::failed_precondition, "the keeper speaks " + theirs + ", this agent protocol " +
                                              std::to_string(kProtocol) +
                                              ": start the service again, so that both are of one version"};
}

}  // namespace

result<std::pair<Fd, Fd>> make_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    return Error{errc::exhausted, std::string("making a socket pair: ") + std::strerror(errno)};
  for (const int fd : fds)
    if (::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kSendBuffer, sizeof kSendBuffer) != 0)
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  return std::pair{Fd(fds[0]), Fd(fds[1])};
}

result<StoredFds> Client::take() {
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kSaidWithin, sizeof kSaidWithin);
  const auto first = keeper::hear(socket_.get(), Waits::yes);
  if (!first) return first.error();
  if (auto meets = check_protocol(first->note); !meets) return meets.error();
  StoredFds all;
  for (;;) {
    auto heard = keeper::hear(socket_.get(), Waits::yes);
    if (!heard) return heard.error();
    const KeeperMessage& note = heard->note;
    auto& fds = heard->descriptors;
    if (note.kind == Kind::end) {
      deaths_ = all.deaths;
      return all;
    }
    if (note.kind == Kind::link)
      all.links.push_back({{note.token, note.device, heard->backend, 0}, std::move(fds[0]), std::move(fds[1])});
    else if (note.kind == Kind::memory)
      all.memory.push_back({note.token, std::move(fds[0])});
    else if (note.kind == Kind::listener)
      all.listeners.push_back({heard->backend, note.device != 0, std::move(fds[0])});
    else if (note.kind == Kind::deaths)
      all.deaths = {note.device, static_cast<int>(note.instead_of), time_point(std::chrono::nanoseconds(note.token))};
    else if (note.kind == Kind::pause)
      all.deaths.pause = std::chrono::nanoseconds(note.token);
  }
}

result<> Client::hold(const Link& link, int socket, int ledger) {
  const int fds[] = {socket, ledger};
  return say({Kind::link, link.device, link.token, link.instead_of}, link.backend, fds);
}

result<> Client::hold_memory(std::uint64_t token, int file) {
  const int fds[] = {file};
  return say({Kind::memory, 0, token, 0}, {}, fds);
}

/// If the keeper stopped reading, assume it still holds every descriptor. A keeper that has ended takes the agent with
/// it (PR_SET_PDEATHSIG).
result<> Client::drop(std::uint64_t token) { return say({Kind::drop, 0, token, 0}, {}, {}); }

result<> Client::hold_listener(const std::string& path, bool registered, int socket) {
  const int fds[] = {socket};
  return say({Kind::listener, registered ? 1u : 0u, 0, 0}, path, fds);
}

result<> Client::drop_listener(const std::string& path) { return say({Kind::drop_listener, 0, 0, 0}, path, {}); }

result<> Client::say(const KeeperMessage& note, const std::string& backend, std::span<const int> descriptors) {
  auto told = tell(socket_.get(), note, backend, descriptors);
  if (!told) deaf_ = true;
  return told;
}

}  // namespace corbd::keeper
