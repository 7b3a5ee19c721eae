// Implements busy() and check_path(), the questions that the agent itself asks the filesystem. Neither can hang.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "corbd/core/fd.hpp"
#include "corbd/host/host.hpp"

namespace corbd::host {
namespace {

int resolve_below(int root, const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: something was renamed meanwhile (openat2(2)).
  constexpr int tries = 16;
  int error = 0;
  for (int i = 0; i < tries; ++i) {
    const Fd fd(static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
    if (fd) return 0;
    error = errno;
    if (error != EAGAIN && error != EINTR) break;
  }
  return error;
}

Error refused(const std::string& path, const std::string& root, int error) {
  switch (error) {
    case ENOENT:
      return {errc::not_found, path + " does not exist"};
    case ELOOP:
      return {errc::invalid_argument, path + " is or goes through a symbolic link"};
    case EXDEV:
      return {errc::invalid_argument, path + " leaves " + root};
    case ENOTDIR:
      return {errc::invalid_argument, path + " goes through something that is not a folder"};
    case ENAMETOOLONG:
      return {errc::invalid_argument, path + " is too long"};
    default:
      return {errc::unavailable, path + ": " + std::strerror(error)};
  }
}

bool has_dots(const std::string& path) { return ("/" + path + "/").find("/../") != std::string::npos; }

}  // namespace

bool busy(const std::string& busy_file) {
  const Fd fd(::open(busy_file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return errno != ENOENT;
  // Take a shared lock, so that two callers at once do not disturb each other.
  return ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
}

std::string plain_path(const std::string& path) {
  std::string plain;
  for (std::size_t at = 0; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto part = path.substr(at, end - at);
    if (!part.empty() && part != ".") plain += (plain.empty() && !path.starts_with('/') ? "" : "/") + part;
    at = end + 1;
  }
  return plain.empty() && path.starts_with('/') ? "/" : plain;
}

bool is_below(const std::string& path, const std::string& folder) {
  const std::string plain = plain_path(path), before = plain_path(folder);
  return plain == before || before == "/" || plain.starts_with(before + "/");
}

std::string real_path(const std::string& path, const std::string& root, const std::string& real_root) {
  std::string plain = plain_path(path);
  const std::string before = plain_path(root);
  if (plain == before) return plain_path(real_root);
  return plain.starts_with(before + "/") ? plain_path(real_root) + plain.substr(before.size()) : plain;
}

result<> check_path(const std::string& root, const std::string& path, bool must_exist) {
  std::string prefix = root;
  while (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
  prefix += '/';
  if (!path.starts_with(prefix) || path.find('\0') != std::string::npos)
    return Error{errc::invalid_argument, path + " is not below " + root};
  std::string below = path.substr(prefix.size());
  while (!below.empty() && below.back() == '/') below.pop_back();
  if (below.empty()) return Error{errc::invalid_argument, path + " is not below " + root};
  // openat2 allows this as long as it stays below the root, but no orchestrator sends it.
  if (has_dots(below)) return Error{errc::invalid_argument, path + " contains .."};

  const Fd folder(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return Error{errc::unavailable, root + ": " + std::strerror(errno)};
  int error = resolve_below(folder.get(), below);
  if (error == ENOENT && !must_exist) {
    const auto slash = below.rfind('/');
    const std::string around = slash == std::string::npos ? "." : below.substr(0, slash);
    error = resolve_below(folder.get(), around);
    if (error == ENOENT) return Error{errc::not_found, prefix + around + " does not exist, but must hold " + path};
  }
  if (error != 0) return refused(path, root, error);
  return {};
}

}  // namespace corbd::host
