#include "listener.hpp"

#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::rpc {
namespace {

constexpr int kPauseMs = 100;

Error failed(const std::string& path) {
  return {errc::unavailable, "listening on " + path + ": " + std::strerror(errno)};
}

}  // namespace

result<std::unique_ptr<Listener>> Listener::open(const std::string& path) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), ends(::eventfd(0, EFD_CLOEXEC));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (!socket || !ends || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return failed(path);
  // Do this before listen(), while nobody can connect.
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) return failed(path);
  return std::unique_ptr<Listener>(new Listener(std::move(socket), std::move(ends)));
}

result<std::unique_ptr<Listener>> Listener::adopt(Fd socket) {
  Fd ends(::eventfd(0, EFD_CLOEXEC));
  if (!ends) return Error{errc::exhausted, std::string("going on with a socket: ") + std::strerror(errno)};
  return std::unique_ptr<Listener>(new Listener(std::move(socket), std::move(ends)));
}

Listener::~Listener() { end(); }

void Listener::end() {
  if (!thread_.joinable()) return;
  static_cast<void>(::eventfd_write(ends_.get(), 1));
  thread_.join();
}

Fd Listener::release() {
  end();
  return std::move(socket_);
}

void Listener::start(grpc::Server& server) {
  thread_ = std::thread([this, &server] { run(server); });
}

void Listener::run(grpc::Server& server) const {
  std::array<pollfd, 2> news{pollfd{ends_.get(), POLLIN, 0}, pollfd{socket_.get(), POLLIN, 0}};
  bool told = false;
  while (::poll(news.data(), news.size(), -1) < 0 || news[0].revents == 0) {
    const int connection = ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      told = false;
      grpc::AddInsecureChannelFromFd(&server, connection);
      continue;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
    // New connections wait in the socket until a descriptor is free.
    if (!std::exchange(told, true)) log::error("rpc.not_accepting", {{"error", std::strerror(errno)}});
    ::poll(news.data(), 1, kPauseMs);
  }
}

}  // namespace corbd::rpc
