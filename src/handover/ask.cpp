// The next agent's side. It has neither threads nor coroutines yet.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "corbd/core/log.hpp"
#include "corbd/handover/handover.hpp"
#include "messages.hpp"
#include "passing.hpp"

namespace corbd::handover {
namespace {

constexpr int kAnswerWithin = 10;  // s
// The agent before may first wait for commands to the kernel's driver, and for calls under way.
constexpr int kGivesWithin = 150, kEndsWithin = 10;  // s

/// An invalid one: nobody listens there.
result<Fd> call(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Fd();
  path.copy(address.sun_path, path.size());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return Error{errc::exhausted, std::string("making a socket: ") + std::strerror(errno)};
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
  if (errno == ENOENT || errno == ECONNREFUSED) return Fd();
  return Error{errc::unavailable, "asking the agent at " + path + ": " + std::strerror(errno)};
}

result<> greet(int socket, const Side& next) {
  const auto user = user_of_peer(socket);
  if (!user) return user.error();
  if (*user != ::geteuid())
    return Error{errc::permission_denied, "the agent that serves is another user's: " + std::to_string(*user)};
  set_timeouts(socket, kAnswerWithin);
  if (auto sent = send(socket, pack(Hello{kProtocol, next})); !sent) return sent;
  const auto answer = receive(socket);
  if (!answer) return answer.error();
  return unpack_answer(answer->text);
}

result<Estate> take(int socket) {
  set_timeouts(socket, kGivesWithin);
  Estate estate;
  for (;;) {
    auto message = receive(socket);
    if (!message) return message.error();
    const auto part = unpack_part(message->text);
    if (!part) return part.error();
    if (part->ready) {
      if (auto sent = send(socket, message->text); !sent) return sent.error();
      continue;
    }
    auto& sockets = message->descriptors;
    if (sockets.size() != part->sockets())
      return Error{errc::internal, "the other agent's message came with " + std::to_string(sockets.size()) +
                                       " descriptors instead of " + std::to_string(part->sockets())};
    for (std::size_t i = 0; i < part->links.size(); ++i)
      estate.links.push_back({part->links[i].first, part->links[i].second, std::move(sockets[i])});
    if (!part->lock) continue;
    estate.lock = std::move(sockets.front());
    return estate;
  }
}

/// A process that is the first of its PID namespace gets a signal only if it asks for it, and this one asks for
/// minutes.
class EndsBySignal {
 public:
  EndsBySignal() {
    for (const int number : {SIGTERM, SIGINT}) ::signal(number, [](int) { ::_exit(1); });
  }
  ~EndsBySignal() {
    for (const int number : {SIGTERM, SIGINT}) ::signal(number, SIG_DFL);
  }
  EndsBySignal(const EndsBySignal&) = delete;
  EndsBySignal& operator=(const EndsBySignal&) = delete;
};

/// It writes nothing any more, but only its end says that it holds nothing.
void outlast(int socket) {
  set_timeouts(socket, kEndsWithin);
  if (const auto more = receive(socket); more || more.error().code != errc::not_found)
    log::warning("handover.not_ended", {{"effect", "this agent goes on beside the one before it"}});
}

}  // namespace

result<std::optional<Estate>> ask(const std::string& runtime_dir, const Side& next) {
  const EndsBySignal ends;
  const auto socket = call(socket_path(runtime_dir));
  if (!socket) return socket.error();
  if (!*socket) return std::optional<Estate>();
  if (auto greeted = greet(socket->get(), next); !greeted) {
    // It ended before it answered, so it gives nothing and holds nothing.
    if (greeted.error().code == errc::not_found) return std::optional<Estate>();
    return greeted.error();
  }
  log::info("handover.waits", {{"for", "the agent that serves"}});
  auto estate = take(socket->get());
  if (!estate) {
    // It may hold everything still.
    if (estate.error().code == errc::timed_out) return estate.error();
    log::warning("handover.failed", {{"error", estate.error().text}, {"effect", "devices are healed instead"}});
    return std::optional<Estate>();
  }
  outlast(socket->get());
  return std::optional<Estate>(std::move(*estate));
}

}  // namespace corbd::handover
