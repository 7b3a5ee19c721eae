#include "admin_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "corbd/core/fd.hpp"

namespace corbd::cli {

namespace {

result<Fd> connect_to_agent(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path)
    return Error{errc::invalid_argument,
                 socket + " is too long for the path of a socket: give the --runtime-dir that the agent has"};
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error{errc::unavailable, std::string("making a socket: ") + std::strerror(errno)};
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN)
    return fd;
  switch (errno) {
    case ENOENT:
    case ENOTDIR:
      return Error{
          errc::not_found,
          "no agent runs here: there is no " + socket +
              ". Start one (corbd run), or give the --runtime-dir that it was started with (or CORBD_RUNTIME_DIR)"};
    case ECONNREFUSED:
      return Error{errc::unavailable,
                   "no agent answers on " + socket +
                       ": the one that made it has ended. Its log says why; start it again (corbd run)"};
    case EACCES:
    case EPERM:
      return Error{errc::permission_denied, "only root may open " + socket + ": run the command as root"};
    default:
      return Error{errc::unavailable, "connecting to " + socket + ": " + std::strerror(errno)};
  }
}

/// Only root may own the path: anybody may make folders in /tmp and listen there, and a command may carry a key.
bool only_roots(const std::string& path) {
  struct stat seen{};
  return ::lstat(path.c_str(), &seen) == 0 && !S_ISLNK(seen.st_mode) && seen.st_uid == 0 && (seen.st_mode & 0022) == 0;
}

result<> look_in(const std::string& folder) {
  const std::string socket = admin_socket(folder);
  if (auto found = look_for_agent(socket); !found || folder == kRuntimeDirs[0]) return found;
  for (std::filesystem::path path = socket; path != "/" && path != "/tmp"; path = path.parent_path())
    if (!only_roots(path.string()))
      return Error{errc::not_found, "no agent is asked on " + socket + ": others than root may write " + path.string() +
                                        ". Name the folder with --runtime-dir if that is right"};
  return {};
}

}  // namespace

std::string agents_folder(const std::string& given) { return agents_folder(given, look_in); }

std::string agents_folder(const std::string& given, const std::function<result<>(const std::string&)>& look) {
  if (!given.empty()) return given;
  std::string been;
  for (const std::string folder : kRuntimeDirs) {
    const auto found = look(folder);
    if (found) return folder;
    if (been.empty() && found.error().code != errc::not_found) been = folder;
  }
  return been.empty() ? kRuntimeDirs[0] : been;
}

std::string admin_socket(const std::string& runtime_dir) {
  return std::filesystem::absolute(runtime_dir).string() + "/admin.sock";
}

result<> look_for_agent(const std::string& socket) {
  const auto there = connect_to_agent(socket);
  if (!there) return there.error();
  return {};
}

result<pid_t> pid_of_agent(const std::string& socket) {
  const auto there = connect_to_agent(socket);
  if (!there) return there.error();
  ucred agent{};
  socklen_t size = sizeof agent;
  if (::getsockopt(there->get(), SOL_SOCKET, SO_PEERCRED, &agent, &size) != 0 || agent.pid <= 0)
    return Error{errc::unavailable, "cannot find out which process listens on " + socket};
  return agent.pid;
}

}  // namespace corbd::cli
