#include "corbd/rpc/inherited.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "corbd/core/log.hpp"
#include "socket.hpp"

namespace corbd::rpc {
namespace {

std::string bound_path(int socket) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 || address.sun_family != AF_UNIX)
    return {};
  return {address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path)};
}

/// Looks for a socket by its name, because nobody finds one without.
bool is_socket(const std::string& path) {
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode);
}

}  // namespace

void Inherited::end_rest() {
  for (const auto& one : all_) {
    log::info("rpc.not_inherited", {{"path", one.path}, {"cause", "this agent answers elsewhere"}});
    ::unlink(one.path.c_str());
  }
  all_.clear();
}

void Inherited::add(Fd socket) {
  std::string path = bound_path(socket.get());
  if (path.starts_with('/') && is_socket(path)) all_.push_back({std::move(path), std::move(socket)});
}

Fd Inherited::take(const std::string& endpoint) {
  const auto path = socket_path(endpoint);
  if (!path) return {};
  const auto found = std::ranges::find(all_, *path, &One::path);
  if (found == all_.end()) return {};
  Fd socket = std::move(found->socket);
  all_.erase(found);
  return socket;
}

}  // namespace corbd::rpc
