#include "passing.hpp"

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace corbd::handover {
namespace {

// Exceeds the largest message of messages.cpp.
constexpr std::size_t kMostBytes = 64u << 10;

}  // namespace

result<> send(int socket, std::string_view text, const Fd* descriptor, Waits waits) {
  const std::array one{descriptor != nullptr ? descriptor->get() : -1};
  const auto sent = send_message(socket, text, {one.data(), descriptor != nullptr ? one.size() : 0}, waits);
  if (!sent) return Error{errc::unavailable, "the other agent: " + sent.error().text};
  return {};
}

result<Message> receive(int socket, Waits waits) {
  auto got = receive_message(socket, kMostBytes, waits);
  if (!got) return with_context("the other agent", got.error());
  if (got->descriptors.size() > 1)
    return Error{errc::internal, "a message of the other agent came with " + std::to_string(got->descriptors.size()) +
                                     " descriptors instead of one"};
  return Message{std::move(got->bytes), got->descriptors.empty() ? Fd() : std::move(got->descriptors.front())};
}

result<unsigned> user_of_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return Error{errc::unavailable, std::string("asking who is there: ") + std::strerror(errno)};
  return peer.uid;
}

void set_timeouts(int socket, int seconds) {
  const timeval limit{seconds, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

}  // namespace corbd::handover
