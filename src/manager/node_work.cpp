#include "node_work.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/core/held_path.hpp"
#include "corbd/host/host.hpp"

namespace corbd::manager {
namespace {

constexpr unsigned kPermissions = 07777;

Error not_done(const std::string& doing, const std::string& path, int error) {
  const errc code = error == ENOENT || error == ENOTDIR ? errc::not_found
                    : error == EIO                      ? errc::io
                    : error == EACCES || error == EPERM ? errc::permission_denied
                                                        : errc::unavailable;
  return {code, doing + " " + path + ": " + std::strerror(error)};
}

/// Returns the first name in the open folder; empty if there is none.
result<std::string> first_in(Fd opened, const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opened ? ::fdopendir(opened.get()) : nullptr, &::closedir);
  if (!folder) return not_done("reading", path, errno);
  opened.release();
  errno = 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return std::string(name);
    errno = 0;
  }
  if (errno != 0) return not_done("reading", path, errno);
  return std::string();
}

/// Works like realpath(3), but follows a link only if root made it, or the user who runs this command: root would
/// otherwise mount where somebody else points. fs.protected_symlinks has this rule for sticky folders; here it holds in
/// every folder. Empty for the root.
result<std::string> resolve_folder(const std::filesystem::path& path) {
  constexpr int most_links = 40;  // the kernel's limit
  std::string real;
  std::deque<std::string> rest(path.begin(), path.end());
  for (int links = 0; !rest.empty();) {
    const std::string name = rest.front();
    rest.pop_front();
    if (name == "/") real.clear();
    if (name == "..") real.erase(std::min(real.rfind('/'), real.size()));
    if (name.empty() || name == "/" || name == "." || name == "..") continue;
    const std::string at = real + "/" + name;
    struct stat found{};
    if (::lstat(at.c_str(), &found) != 0) return not_done("looking at", at, errno);
    if (!S_ISLNK(found.st_mode) && !S_ISDIR(found.st_mode)) return not_done("looking into", at, ENOTDIR);
    if (S_ISDIR(found.st_mode)) {
      real = at;
      continue;
    }
    if (found.st_uid != 0 && found.st_uid != ::geteuid())
      return Error{errc::invalid_argument, at + " is a symbolic link of user " + std::to_string(found.st_uid) +
                                               ", who may point it elsewhere: name the folder that it leads to"};
    if (++links > most_links) return not_done("following", at, ELOOP);
    std::error_code failed;
    const auto to = std::filesystem::read_symlink(at, failed);
    if (failed) return not_done("reading the link", at, failed.value());
    rest.insert(rest.begin(), to.begin(), to.end());
  }
  return real;
}

/// Closes the outputs: a helper that waits for a device outlives the command that asked, and a reader of that command's
/// output would wait for the helper.
bool leave_outputs() {
  const Fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  return nowhere && ::dup2(nowhere.get(), STDOUT_FILENO) >= 0 && ::dup2(nowhere.get(), STDERR_FILENO) >= 0;
}

}  // namespace

namespace ops {

result<PathState> look(const std::string& path) {
  PathState sight;
  const auto place = HeldPath::find(path);
  if (!place && place.error().code != errc::not_found) return place.error();
  struct stat found{};
  if (!place || !place->look(found)) {
    if (place && errno != ENOENT) return not_done("looking at", path, errno);
    sight.at = PathState::At::nothing;
    return sight;
  }
  if (S_ISLNK(found.st_mode)) {
    sight.at = PathState::At::link;
  } else if (!S_ISDIR(found.st_mode)) {
    // A raw block volume is bound on an empty file. Any other file is somebody's.
    sight.at = S_ISREG(found.st_mode) && found.st_size == 0 ? PathState::At::file : PathState::At::filled;
    if (sight.at == PathState::At::filled) sight.text = "data, because it is a file";
  } else {
    auto first = first_in(place->open(O_RDONLY | O_DIRECTORY), path);
    if (!first) return first.error();
    sight.at = first->empty() ? PathState::At::folder : PathState::At::filled;
    sight.text = std::move(*first);
  }
  sight.mode = found.st_mode & kPermissions;
  sight.owner = {found.st_uid, found.st_gid};
  auto folder = place->folder_identity();
  if (!folder) return folder.error();
  sight.folder = *folder;
  return sight;
}

/// Sets the mode in spite of the umask. The owner comes first, because that change clears bits.
result<> set_mode(const Fd& made, const std::string& path, unsigned mode, std::optional<Owner> owner) {
  if (owner && ::fchown(made.get(), owner->uid, owner->gid) != 0) return not_done("giving its owner to", path, errno);
  if (::fchmod(made.get(), mode) != 0) return not_done("giving its permissions to", path, errno);
  return {};
}

result<> make_folder_at(const HeldPath& place, unsigned mode, std::optional<Owner> owner) {
  if (place.make_folder(mode & 0700)) {
    const Fd made = place.open(O_RDONLY | O_DIRECTORY);
    if (!made) return not_done("opening", place.path(), errno);
    // The owner of the parent may have replaced the new folder by another one.
    struct stat found{};
    const auto first = first_in(Fd(::fcntl(made.get(), F_DUPFD_CLOEXEC, 0)), place.path());
    if (!first) return first.error();
    if (!first->empty() || ::fstat(made.get(), &found) != 0 || found.st_uid != ::geteuid())
      return Error{errc::failed_precondition, place.path() + " was replaced by somebody else just now"};
    return set_mode(made, place.path(), mode, owner);
  }
  if (errno != EEXIST) return not_done("making the folder", place.path(), errno);
  struct stat found{};
  if (place.look(found) && S_ISDIR(found.st_mode)) return {};
  return Error{errc::failed_precondition, place.path() + " exists and is not a folder"};
}

result<> make_file_at(const HeldPath& place, unsigned mode, std::optional<Owner> owner) {
  const Fd made = place.make_file(mode & 0600);
  if (made) return set_mode(made, place.path(), mode, owner);
  if (errno != EEXIST) return not_done("making the file", place.path(), errno);
  struct stat found{};
  if (place.look(found) && S_ISREG(found.st_mode)) return {};
  return Error{errc::failed_precondition, place.path() + " exists and is not a file"};
}

result<> make_folder(const std::string& path, unsigned mode) {
  auto place = HeldPath::find(path);
  if (!place && place.error().code == errc::not_found) {
    if (auto made = make_folder(std::filesystem::path(path).parent_path(), 0700); !made) return made;
    place = HeldPath::find(path);
  }
  if (!place) return place.error();
  return make_folder_at(*place, mode, std::nullopt);
}

result<> put_back(const std::string& path, const Before& before) {
  const auto place = HeldPath::find(path);
  if (!place && place.error().code == errc::not_found) return Error{errc::invalid_argument, place.error().text};
  if (!place) return place.error();
  std::optional<Owner> owner = before.owner;
  if (before.folder) {
    const auto now = place->folder_identity();
    if (!now) return now.error();
    if (*now != *before.folder)
      return Error{errc::invalid_argument,
                   "the folder that holds " + path + " is not the one that held it before the mount"};
  } else if (owner && owner->uid != 0) {
    // Anybody who may write a parent could have put another folder there, whose name is unknown.
    owner.reset();
  }
  return before.file ? make_file_at(*place, before.mode, owner) : make_folder_at(*place, before.mode, owner);
}

result<> remove_folder(const std::string& path, const std::string& root) {
  for (std::filesystem::path at = path; at.string().starts_with(root + "/"); at = at.parent_path()) {
    const auto place = HeldPath::find(at);
    if (!place && place.error().code == errc::not_found) continue;
    if (!place) return place.error();
    if (place->remove_folder() || errno == ENOENT) continue;
    // A file was left by a raw block volume. It stays, and so does a folder with content.
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) return {};
    return not_done("removing the folder", at, errno);
  }
  return {};
}

result<std::string> resolve(const std::string& path) {
  const std::filesystem::path plain = host::plain_path(path);
  const std::string name = plain.filename();
  if (!plain.is_absolute() || name.empty() || name == "..")
    return Error{errc::invalid_argument, path + " is not an absolute path of a folder to mount on"};
  auto folder = resolve_folder(plain.parent_path());
  if (!folder) return with_context("the folder that is to hold " + path, folder.error());
  return *folder + "/" + name;
}

result<> read_device(const std::string& path) {
  // The largest logical block of a device, and the alignment that O_DIRECT may require.
  constexpr std::size_t block = 4096;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  const bool gone = !fd && (errno == ENXIO || errno == ENODEV || errno == ENOENT || errno == EIO);
  if (gone) return Error{errc::io, "opening " + path + ": " + std::strerror(errno)};
  if (!fd) return not_done("opening", path, errno);
  alignas(block) std::array<char, block> bytes;
  const ssize_t got = ::pread(fd.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && errno == EIO) return Error{errc::io, path + " gives I/O errors"};
  if (got < 0) return not_done("reading", path, errno);
  // The device lost its size.
  if (got == 0) return Error{errc::io, path + " is empty"};
  return {};
}

}  // namespace ops

namespace operation {

result<PathState> perform(const Look& asked) { return ops::look(asked.path); }
result<std::vector<std::string>> perform(const FindUsers& asked) { return ops::users(asked.path); }
result<> perform(const MakeFolder& asked) { return ops::make_folder(asked.path, asked.mode); }
result<> perform(const PutBack& asked) { return ops::put_back(asked.path, asked.before); }
result<> perform(const RemoveFolder& asked) { return ops::remove_folder(asked.path, asked.root); }
result<std::string> perform(const Resolve& asked) { return ops::resolve(asked.path); }
result<> perform(const ReadDevice& asked) { return ops::read_device(asked.path); }

}  // namespace operation

namespace {

template <class Operation>
result<boost::json::object> perform_quietly(const boost::json::object& request) {
  static const bool once = leave_outputs();
  static_cast<void>(once);
  return helper::perform_request<Operation>(request);
}

template <class... Operations>
constexpr std::array kQuiet{helper::Known{Operations::name, &perform_quietly<Operations>}...};

}  // namespace

std::span<const helper::Known> helper_operations() {
  using namespace operation;
  return kQuiet<Look, FindUsers, MakeFolder, PutBack, RemoveFolder, Resolve, ReadDevice>;
}

}  // namespace corbd::manager
