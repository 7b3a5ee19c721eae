#include "corbd/device/link_end.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "corbd/core/log.hpp"

namespace corbd::device {
namespace {

constexpr std::size_t kPiece = 64u << 10;
// After this many pieces it is another socket's turn.
constexpr int kPieces = 64;
// The kernel has 128 requests per socket at most, of 1 MiB on a tuned device.
constexpr int kMostTurns = 64;
// A kernel that gets processor time needs only milliseconds.
constexpr std::chrono::seconds kTellsAfter{1};

std::int64_t ms(duration of) { return std::chrono::duration_cast<std::chrono::milliseconds>(of).count(); }

/// Returns the sockets whose other side has not ended.
std::vector<pollfd> look(std::vector<pollfd> open) {
  std::erase_if(open, [](const pollfd& one) { return one.revents != 0 && discard_input(one.fd) == Input::ended; });
  return open;
}

}  // namespace

/// Reading first makes room. A kernel thread that has no room to send can be interrupted by a signal, and leaves the
/// rest of its request to a worker. If the kernel had seen our end by then, it would forget the rest before that worker
/// begins.
void begin_end(int socket) {
  for (int turns = 0; turns < kMostTurns && discard_input(socket) == Input::more;) ++turns;
  ::shutdown(socket, SHUT_WR);
}

Input discard_input(int socket) {
  std::array<char, kPiece> nowhere;  // NOLINT: what is in it is nobody's
  for (int pieces = 0; pieces < kPieces; ++pieces) {
    const ssize_t got = ::recv(socket, nowhere.data(), nowhere.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Input::none;
    if (got <= 0) return Input::ended;
  }
  return Input::more;
}

void cut(int socket) { ::shutdown(socket, SHUT_RDWR); }

void log_cut(std::size_t links) {
  log::error("link.cut", {{"links", links},
                          {"cause", "the kernel did not end its side in time"},
                          {"effect", "the kernel may fail a request that it was sending"}});
}

void end_links(std::span<const int> sockets, duration within) {
  const auto begun = std::chrono::steady_clock::now();
  std::vector<pollfd> open;
  for (const int socket : sockets) {
    begin_end(socket);
    open.push_back({socket, POLLIN, 0});
  }
  bool told = false;
  for (;;) {
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (open.empty() || waited >= within) break;
    if (waited >= kTellsAfter && !std::exchange(told, true))
      log::warning(
          "link.waits_for_end",
          {{"links", open.size()}, {"cause", "the kernel has not ended its side of them"}, {"at_most_ms", ms(within)}});
    ::poll(open.data(), open.size(), static_cast<int>(ms(std::min<duration>(within - waited, kTellsAfter))) + 1);
    open = look(std::move(open));
  }
  for (const pollfd& one : open) cut(one.fd);
  if (!open.empty()) log_cut(open.size());
}

}  // namespace corbd::device
