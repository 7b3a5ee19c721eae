#include "wire.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace corbd::keeper {
namespace {

constexpr std::size_t kMostDescriptors = 2, kMostText = 4096;

union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes;
};

}  // namespace

result<> tell(int socket, const Note& note, const std::string& backend, std::span<const int> descriptors) {
  if (backend.size() > kMostText) return Error{errc::invalid_argument, "an identifier is too long for the keeper"};
  Control control{};
  iovec parts[2] = {{const_cast<Note*>(&note), sizeof note}, {const_cast<char*>(backend.data()), backend.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    if (errno != EINTR)
      return Error{errno == EPIPE || errno == ECONNRESET ? errc::not_found : errc::unavailable,
                   std::string("telling the keeper: ") + std::strerror(errno)};
  return {};
}

result<Heard> hear(int socket, bool wait) {
  Heard heard;
  heard.backend.resize(kMostText);
  Control control{};
  iovec parts[2] = {{&heard.note, sizeof heard.note}, {heard.backend.data(), heard.backend.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t bytes = 0;
  do bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  while (bytes < 0 && errno == EINTR);
  if (bytes < 0 && errno == EAGAIN) return Error{errc::timed_out, "nothing was said"};
  if (bytes < 0 && errno != ECONNRESET)
    return Error{errc::unavailable, std::string("hearing what is kept: ") + std::strerror(errno)};
  for (cmsghdr* head = bytes < 0 ? nullptr : CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
      heard.descriptors.emplace_back(fd);
    }
  }
  if (bytes <= 0) return Error{errc::not_found, "the other side has ended"};
  const bool whole = static_cast<std::size_t>(bytes) >= sizeof heard.note;
  const std::size_t wanted = heard.note.kind == Kind::link ? 2 : heard.note.kind == Kind::memory ? 1 : 0;
  if (!whole || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || heard.descriptors.size() != wanted)
    return Error{errc::internal, "a message between agent and keeper is not whole: is there no free descriptor?"};
  heard.backend.resize(static_cast<std::size_t>(bytes) - sizeof heard.note);
  return heard;
}

}  // namespace corbd::keeper
