#include "corbd/core/fd_message.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace corbd {
namespace {

// The kernel's limit of descriptors per message (SCM_MAX_FD).
constexpr std::size_t kMostDescriptors = 253;

union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes;
};

int flags_of(Waits waits) { return waits == Waits::no ? MSG_DONTWAIT : 0; }

std::vector<Fd> take_descriptors(msghdr& message) {
  std::vector<Fd> all;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
      all.emplace_back(fd);
    }
  }
  return all;
}

}  // namespace

result<> send_message(int socket, std::string_view bytes, std::span<const int> descriptors, Waits waits) {
  if (descriptors.size() > kMostDescriptors) return Error{errc::invalid_argument, "too many descriptors in a message"};
  Control control{};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | flags_of(waits)) < 0)
    if (errno != EINTR)
      return Error{errno == EPIPE || errno == ECONNRESET ? errc::not_found : errc::unavailable,
                   std::string("sending a message: ") + std::strerror(errno)};
  return {};
}

result<FdMessage> receive_message(int socket, std::size_t most_bytes, Waits waits) {
  FdMessage got;
  got.bytes.resize(most_bytes);
  Control control{};
  iovec part{got.bytes.data(), got.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t bytes = 0;
  // ECONNRESET says that the other side ended with a message of ours unread. Its own messages are still to be read.
  do bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags_of(waits));
  while (bytes < 0 && (errno == EINTR || errno == ECONNRESET));
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Error{errc::timed_out, "no message came"};
  if (bytes < 0) return Error{errc::unavailable, std::string("receiving a message: ") + std::strerror(errno)};
  got.descriptors = take_descriptors(message);
  if (bytes == 0) return Error{errc::not_found, "the other side has ended"};
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return Error{errc::exhausted, "a message did not arrive in full: is there no free descriptor?"};
  got.bytes.resize(static_cast<std::size_t>(bytes));
  return got;
}

}  // namespace corbd
