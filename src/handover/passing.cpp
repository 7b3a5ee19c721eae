#include "passing.hpp"

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace corbd::handover {
namespace {

// The most that messages.cpp packs, and more.
constexpr std::size_t kMostBytes = 64u << 10;
// The kernel passes on at most so many (SCM_MAX_FD). More than one is somebody else's doing.
constexpr std::size_t kMostDescriptors = 253;

union OneDescriptor {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};
union Descriptors {
  cmsghdr align;
  std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes;
};

Error failure(const char* doing) { return {errc::unavailable, std::string(doing) + ": " + std::strerror(errno)}; }

int flags_of(Waits waits) { return waits == Waits::no ? MSG_DONTWAIT : 0; }

std::vector<Fd> descriptors_of(msghdr& message) {
  std::vector<Fd> all;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
      all.emplace_back(fd);
    }
  }
  return all;
}

}  // namespace

result<> send(int socket, std::string_view text, const Fd* descriptor, Waits waits) {
  OneDescriptor control{};
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor != nullptr) {
    const int fd = descriptor->get();
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL | flags_of(waits)) >= 0) return {};
    if (errno != EINTR) return failure("sending to the other agent");
  }
}

result<Message> receive(int socket, Waits waits) {
  Message got;
  got.text.resize(kMostBytes);
  Descriptors control{};
  iovec part{got.text.data(), got.text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t bytes = 0;
  // ECONNRESET says that the other side ended with a message of ours unread. Its own messages are still to be read.
  do bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags_of(waits));
  while (bytes < 0 && (errno == EINTR || errno == ECONNRESET));
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return Error{errc::timed_out, "the other agent says nothing"};
  if (bytes < 0) return failure("reading from the other agent");
  auto descriptors = descriptors_of(message);
  if (bytes == 0) return Error{errc::not_found, "the other agent has ended"};
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return Error{errc::exhausted, "a message of the other agent did not come in full: is there no free descriptor?"};
  if (descriptors.size() > 1)
    return Error{errc::internal, "a message of the other agent came with " + std::to_string(descriptors.size()) +
                                     " descriptors instead of one"};
  got.text.resize(static_cast<std::size_t>(bytes));
  if (!descriptors.empty()) got.descriptor = std::move(descriptors.front());
  return got;
}

result<Word> word_of(const Message& message) {
  auto word = unpack_word(message.text);
  if (word && word->has_descriptor() != static_cast<bool>(message.descriptor))
    return Error{errc::internal, "the other agent's message " + message.text + " came " +
                                     (message.descriptor ? "with" : "without") + " a descriptor"};
  return word;
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
