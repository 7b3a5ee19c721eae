#include "passing.hpp"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace corbd::handover {
namespace {

// 64 links with volume IDs of 128 bytes take a sixth of it.
constexpr std::size_t kMostBytes = 64u << 10;

union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes;
};

Error failure(const char* doing) { return {errc::unavailable, std::string(doing) + ": " + std::strerror(errno)}; }

}  // namespace

result<> send(int socket, std::string_view text, std::span<const int> descriptors) {
  Control control{};
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    if (descriptors.size() > kMostDescriptors) return Error{errc::internal, "too many descriptors for a message"};
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) return {};
    if (errno != EINTR) return failure("sending to the other agent");
  }
}

result<Message> receive(int socket) {
  Message got;
  got.text.resize(kMostBytes);
  Control control{};
  iovec part{got.text.data(), got.text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t bytes = 0;
  do bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (bytes < 0 && errno == EINTR);
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return Error{errc::timed_out, "the other agent says nothing"};
  if (bytes < 0 && errno != ECONNRESET) return failure("reading from the other agent");
  for (cmsghdr* head = bytes < 0 ? nullptr : CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
      got.descriptors.emplace_back(fd);
    }
  }
  if (bytes <= 0) return Error{errc::not_found, "the other agent has ended"};
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return Error{errc::exhausted, "a message of the other agent did not come in full: is there no free descriptor?"};
  got.text.resize(static_cast<std::size_t>(bytes));
  return got;
}

result<unsigned> user_of_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return failure("asking who is there");
  return peer.uid;
}

void set_timeouts(int socket, int seconds) {
  const timeval limit{seconds, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

}  // namespace corbd::handover
