#include "socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/rpc/calls.hpp"

namespace corbd::rpc {
namespace {

/// Returns 0, or the errno of the connect. EAGAIN: somebody listens, and the queue of connections is full.
int connect_to(const std::string& path) {
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

}  // namespace

result<> answers(const std::string& endpoint) {
  const auto path = socket_path(endpoint);
  if (!path) return path.error();
  const int failed = connect_to(*path);
  if (failed == EAGAIN)
    return Error{errc::unavailable, *path + " takes no connection, because as many wait for it as may: see which " +
                                        "process connects (ss -xp), and what holds up the one that listens"};
  if (failed != 0) return Error{errc::unavailable, "nobody answers on " + *path + ": " + std::strerror(failed)};
  return {};
}

result<std::string> socket_path(const std::string& endpoint) {
  constexpr std::string_view scheme = "unix://";
  std::string path = endpoint.starts_with(scheme) ? endpoint.substr(scheme.size()) : std::string();
  if (!path.starts_with('/'))
    return Error{errc::invalid_argument,
                 "endpoint '" + endpoint + "' is not a unix socket: give it as unix:///path/to.sock"};
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return Error{errc::invalid_argument,
                 "endpoint '" + endpoint + "' is too long for the path of a socket: choose a shorter path"};
  return path;
}

result<> prepare_socket(const std::string& path) {
  if (auto made = make_folder(std::filesystem::path(path).parent_path(), 0750); !made) return made;
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) return {};
  if (!S_ISSOCK(found.st_mode)) return Error{errc::already_exists, path + " exists but is not a socket: remove it"};
  if (const int failed = connect_to(path); failed == 0 || failed == EAGAIN)
    return Error{errc::in_use, "another process answers on " + path + ": end it first, or give this one another path"};
  if (::unlink(path.c_str()) != 0)
    return Error{errc::state_write, "removing the old socket " + path + ": " + std::strerror(errno)};
  return {};
}

}  // namespace corbd::rpc
