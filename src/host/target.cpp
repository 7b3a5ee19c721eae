#include "target.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "failure.hpp"
#include "mountinfo.hpp"

namespace corbd::host {
namespace {

constexpr mode_t kFolderMode = 0750;  // ceph-csi's mode
constexpr mode_t kFileMode = 0600;

/// Check the type of the target first, because move_mount would only say EINVAL.
result<> check_kind(int fd, const std::string& path, bool file) {
  struct statx found{};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &found) != 0)
    return failure("looking at " + path, errno);
  const bool folder = S_ISDIR(found.stx_mode);
  if (folder != file) return {};
  return Error{errc::failed_precondition,
               path + (folder ? " is a folder, but a raw block volume needs a file there: remove the folder"
                              : " is a file, but a filesystem needs a folder there: remove the file")};
}

result<> make(const HeldPath& place, bool file) {
  const bool made = file ? static_cast<bool>(place.make_file(kFileMode)) : place.make_folder(kFolderMode);
  if (!made && errno != EEXIST) return failure("making " + place.path(), errno);
  return {};
}

}  // namespace

result<Fd> make_target(const std::string& path, bool file) {
  const auto place = HeldPath::find(path);
  if (!place && place.error().code == errc::not_found)
    return failure("making " + path + ", whose parent folder does not exist", ENOENT);
  if (!place) return place.error();
  if (auto made = make(*place, file); !made) return made.error();
  auto opened = open_target(*place);
  if (!opened) return opened.error();
  if (!*opened) return Error{errc::unavailable, path + " was removed by someone else just now"};
  if (auto right = check_kind((*opened)->get(), path, file); !right) return right.error();
  return std::move(**opened);
}

result<std::optional<Fd>> open_target(const HeldPath& place) {
  const std::string& path = place.path();
  Fd fd = place.open(O_PATH);
  if (!fd && errno == ENOENT) return std::optional<Fd>();
  if (!fd) return failure("opening " + path, errno);
  // Unlike statx(2), readlink(2) asks nothing of the filesystem, which may have shut down.
  char link = 0;
  if (::readlinkat(fd.get(), "", &link, sizeof link) >= 0)
    return Error{errc::invalid_argument, path + " is a symbolic link"};
  // readlink(2) returns these for something that is no link. Any other error means an unreadable link.
  if (errno != ENOENT && errno != EINVAL) return failure("looking at " + path, errno);
  return std::optional(std::move(fd));
}

result<Fd> open_mounted(const std::string& path) {
  const auto place = HeldPath::find(path);
  if (!place) return place.error();
  auto opened = open_target(*place);
  if (!opened) return opened.error();
  const auto mounted = *opened ? mount_at((*opened)->get(), path) : std::optional<Mount>();
  if (!mounted) return mounted.error();
  if (!*mounted) return Error{errc::not_found, "nothing is mounted at " + path};
  return std::move(**opened);
}

result<Fd> open_mounted_folder(const std::string& path) {
  const auto opened = open_mounted(path);
  if (!opened) return opened.error();
  Fd root(::open(("/proc/self/fd/" + std::to_string(opened->get())).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return failure("opening " + path, errno);
  return root;
}

result<> check_empty(int target, const std::string& path) {
  struct stat found{};
  if (::fstat(target, &found) != 0) return failure("looking at " + path, errno);
  if (!S_ISDIR(found.st_mode)) return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(("/proc/self/fd/" + std::to_string(target)).c_str()),
                                                   &::closedir);
  if (!folder) return failure("reading " + path, errno);
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..")
      return Error{errc::failed_precondition, path + " is not mounted and holds " + std::string(name) +
                                                  ", which a mount would hide: look at it, and empty the folder"};
  }
  return {};
}

result<> attach(int mount, int target, const std::string& path) {
  if (::move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    return failure("mounting on " + path, errno);
  return {};
}

result<> remove_target(const HeldPath& place) {
  const std::string& path = place.path();
  struct stat found{};
  if (!place.look(found)) {
    if (errno == ENOENT) return {};
    return failure("looking at " + path, errno);
  }
  const bool folder = S_ISDIR(found.st_mode);
  if (!folder && !(S_ISREG(found.st_mode) && found.st_size == 0))
    return Error{errc::failed_precondition, path + " is not mounted and holds something, so it is not removed"};
  if ((folder ? place.remove_folder() : place.remove_file()) || errno == ENOENT) return {};
  if (errno == ENOTEMPTY || errno == EEXIST)
    return Error{errc::failed_precondition, path + " is not mounted and not empty, so it is not removed"};
  return failure("removing " + path, errno);
}

}  // namespace corbd::host
