// The side of helper calls that runs in the helper process.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <thread>

#include "corbd/core/file.hpp"
#include "corbd/core/secret.hpp"
#include "helper_wire.hpp"

namespace corbd {
namespace {

namespace json = boost::json;

constexpr auto kBusyRetryEvery = std::chrono::milliseconds(20);
constexpr int kBusyTries = 100;

// This is our only descriptor without CLOEXEC, so that a mkfs that outlives its helper keeps the lock. For the same
// reason we free the lock by close and never by LOCK_UN, which would take it from that mkfs as well.
result<Fd> take_busy_file(const std::string& path) {
  for (int attempt = 0; attempt < kBusyTries; ++attempt) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    if (!fd) return Error{errc::state_write, "opening the busy file " + path + ": " + std::strerror(errno)};
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      // The agent removes the file under the same lock. A removed file would show nobody that we are at work.
      if (still_names(path, fd.get())) return fd;
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR)
      return Error{errc::state_write, "locking the busy file " + path + ": " + std::strerror(errno)};
    std::this_thread::sleep_for(kBusyRetryEvery);
  }
  return Error{errc::busy, "an earlier operation on the same volume still runs: its helper holds " + path};
}

/// An agent that waits for the answer sends nothing meanwhile.
bool is_awaited(int asker) {
  char byte = 0;
  return ::recv(asker, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0;
}

result<json::object> answer(int asker, std::string& message, const HelperWork& work) {
  auto request = helper_wire::unpack_request(message);
  wipe(message);
  if (!request) return request.error();
  Fd busy;
  if (!request->busy_file.empty()) {
    auto taken = take_busy_file(request->busy_file);
    if (!taken) return taken.error();
    busy = std::move(*taken);
  }
  // The next agent may have changed things meanwhile.
  if (!is_awaited(asker)) return Error{errc::cancelled, "the agent is gone"};
  try {
    return work(request->body);
  } catch (const std::exception& failed) {
    return Error{errc::internal, "the helper's work threw: " + std::string(failed.what())};
  }
}

}  // namespace

int serve_helper(int fd, const HelperWork& work) {
  // A program that the helper starts must not keep the socket open, or the agent would not see the helper die.
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  // A signal to a whole control group is meant for the agent. A helper ends with its socket, when its work is done.
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(ignored, SIG_IGN);
  std::string message;
  for (;;) {
    const auto got = helper_wire::receive(fd, 0, message);
    if (got == helper_wire::Got::closed) return 0;
    if (got == helper_wire::Got::nothing) continue;
    // Free the busy file before the reply goes out, because the caller's next request may go to another helper.
    const std::string reply = helper_wire::pack_reply(answer(fd, message, work));
    const int refused = helper_wire::send(fd, reply);
    if (refused != 0) return refused == EPIPE || refused == ECONNRESET ? 0 : 1;
  }
}

}  // namespace corbd
