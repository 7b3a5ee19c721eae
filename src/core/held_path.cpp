#include "corbd/core/held_path.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace corbd {
namespace {

Fd open_folder(const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS;
  Fd folder;
  // EAGAIN: something was renamed meanwhile (openat2(2)).
  constexpr int tries = 16;
  for (int i = 0; i < tries && !folder; ++i) {
    folder = Fd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
    if (!folder && errno != EAGAIN && errno != EINTR) break;
  }
  return folder;
}

Error not_opened(const std::string& path, const std::string& folder, int error) {
  switch (error) {
    case ENOENT:
      return {errc::not_found, folder + " does not exist, but must hold " + path};
    case ELOOP:
      return {errc::invalid_argument, path + " goes through a symbolic link"};
    case ENOTDIR:
      return {errc::invalid_argument, path + " goes through something that is not a folder"};
    default:
      return {errc::unavailable, "opening " + folder + ": " + std::strerror(error)};
  }
}

}  // namespace

result<HeldPath> HeldPath::find(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string name = path.substr(slash + 1);
  if (!path.starts_with('/') || name.empty() || name == "." || name == ".." || path.find('\0') != path.npos)
    return Error{errc::invalid_argument, "'" + path + "' is not the absolute path of something in a folder"};
  const std::string folder = slash == 0 ? "/" : path.substr(0, slash);
  Fd opened = open_folder(folder);
  if (!opened) return not_opened(path, folder, errno);
  return HeldPath(path, name, std::move(opened));
}

result<FolderIdentity> HeldPath::folder_identity() const {
  struct statx found{};
  if (::statx(folder_.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_BTIME, &found) != 0)
    return Error{errc::unavailable, "looking at the folder of " + path_ + ": " + std::strerror(errno)};
  FolderIdentity identity{found.stx_ino, 0};
  constexpr std::int64_t second = 1'000'000'000;
  if ((found.stx_mask & STATX_BTIME) != 0) identity.born_ns = found.stx_btime.tv_sec * second + found.stx_btime.tv_nsec;
  return identity;
}

bool HeldPath::look(struct stat& found) const {
  return ::fstatat(folder_.get(), name_.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
}

Fd HeldPath::open(int flags) const {
  return Fd(::openat(folder_.get(), name_.c_str(), (flags & ~O_CREAT) | O_NOFOLLOW | O_CLOEXEC));
}

Fd HeldPath::make_file(mode_t mode) const {
  return Fd(::openat(folder_.get(), name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

bool HeldPath::make_folder(mode_t mode) const { return ::mkdirat(folder_.get(), name_.c_str(), mode) == 0; }

bool HeldPath::remove_file() const { return ::unlinkat(folder_.get(), name_.c_str(), 0) == 0; }

bool HeldPath::remove_folder() const { return ::unlinkat(folder_.get(), name_.c_str(), AT_REMOVEDIR) == 0; }

bool HeldPath::unmount() const {
  // There is no umountat(2). This link in /proc leads to the folder that is open here, wherever its path leads by now.
  const std::string place = "/proc/self/fd/" + std::to_string(folder_.get()) + "/" + name_;
  return ::umount2(place.c_str(), UMOUNT_NOFOLLOW) == 0;
}

}  // namespace corbd
