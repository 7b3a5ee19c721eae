// The asking side of a handover. It has neither threads nor coroutines yet.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "corbd/handover/leaves_by_signal.hpp"
#include "passing.hpp"

namespace corbd::handover {
namespace {

constexpr int kAnswerWithin = 10;  // seconds

/// Connects. An invalid result: nobody listens there.
result<Fd> call(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Fd();
  path.copy(address.sun_path, path.size());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return Error{errc::exhausted, std::string("making a socket: ") + std::strerror(errno)};
  // A hung agent accepts nobody, and connect() then waits as long as a send may.
  set_timeouts(socket.get(), kAnswerWithin);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
  if (errno == ENOENT || errno == ECONNREFUSED) return Fd();
  return Error{errc::unavailable, "asking the agent at " + path + ": " + std::strerror(errno)};
}

result<> greet(int socket, const Side& next) {
  const auto user = user_of_peer(socket);
  if (!user) return user.error();
  if (*user != ::geteuid())
    return Error{errc::permission_denied, "the serving agent belongs to another user: " + std::to_string(*user)};
  if (auto sent = send(socket, pack(Hello{kProtocol, next})); !sent) return sent;
  const auto answer = receive(socket);
  if (!answer) return answer.error();
  return unpack_answer(answer->text);
}

}  // namespace

result<Fd> ask(const std::string& runtime_dir, const Side& next) {
  const LeavesBySignal leaves;
  auto socket = call(socket_path(runtime_dir));
  if (!socket || !*socket) return socket;
  if (auto greeted = greet(socket->get(), next); !greeted) {
    // The agent ended before it answered.
    if (greeted.error().code == errc::not_found) return Fd();
    return greeted.error();
  }
  return socket;
}

}  // namespace corbd::handover
