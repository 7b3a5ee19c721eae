#include "node_work.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/json/array.hpp>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/host/host.hpp"

namespace corbd::manager {
namespace {

namespace json = boost::json;

constexpr unsigned kPermissions = 07777;

Error not_done(const std::string& doing, const std::string& path, int error) {
  const errc code = error == ENOENT || error == ENOTDIR ? errc::not_found
                    : error == EIO                      ? errc::io
                    : error == EACCES || error == EPERM ? errc::permission_denied
                                                        : errc::unavailable;
  return {code, doing + " " + path + ": " + std::strerror(error)};
}

json::object sight_to_json(const Sight& sight) {
  return {{"at", static_cast<int>(sight.at)},
          {"text", sight.text},
          {"mode", sight.mode},
          {"uid", sight.owner.uid},
          {"gid", sight.owner.gid}};
}

/// The first name in the folder; empty if there is none.
result<std::string> first_in(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
  if (!folder) return not_done("reading", path, errno);
  errno = 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return std::string(name);
    errno = 0;
  }
  if (errno != 0) return not_done("reading", path, errno);
  return std::string();
}

/// A helper that waits for a device outlives the command that asked. Whoever reads that command's output to its end
/// would wait for the helper.
bool leave_outputs() {
  const Fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  return nowhere && ::dup2(nowhere.get(), STDOUT_FILENO) >= 0 && ::dup2(nowhere.get(), STDERR_FILENO) >= 0;
}

result<json::object> empty_reply(const result<>& done) {
  if (!done) return done.error();
  return json::object();
}

}  // namespace

Sight sight_from_json(const json::object& reply) {
  Sight sight;
  sight.at = static_cast<Sight::At>(reply.at("at").to_number<int>());
  sight.text = reply.at("text").as_string();
  sight.mode = reply.at("mode").to_number<unsigned>();
  sight.owner = {reply.at("uid").to_number<unsigned>(), reply.at("gid").to_number<unsigned>()};
  return sight;
}

namespace ops {

result<Sight> look(const std::string& path) {
  Sight sight;
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno != ENOENT) return not_done("looking at", path, errno);
    sight.at = Sight::At::nothing;
    return sight;
  }
  if (S_ISLNK(found.st_mode)) {
    sight.at = Sight::At::link;
  } else if (!S_ISDIR(found.st_mode)) {
    // An empty file is what a raw block volume is bound on. Anything else is somebody's.
    sight.at = S_ISREG(found.st_mode) && found.st_size == 0 ? Sight::At::file : Sight::At::filled;
    if (sight.at == Sight::At::filled) sight.text = "data, because it is a file";
  } else {
    auto first = first_in(path);
    if (!first) return first.error();
    sight.at = first->empty() ? Sight::At::folder : Sight::At::filled;
    sight.text = std::move(*first);
  }
  sight.mode = found.st_mode & kPermissions;
  sight.owner = {found.st_uid, found.st_gid};
  return sight;
}

/// Whatever the umask is. The owner first, whose change takes bits away.
result<> set_mode(const Fd& made, const std::string& path, unsigned mode, std::optional<Owner> owner) {
  if (owner && ::fchown(made.get(), owner->uid, owner->gid) != 0) return not_done("giving its owner to", path, errno);
  if (::fchmod(made.get(), mode) != 0) return not_done("giving its permissions to", path, errno);
  return {};
}

result<> make_folder(const std::string& path, unsigned mode, std::optional<Owner> owner) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  struct stat found{};
  if (::stat(parent.c_str(), &found) != 0) {
    if (errno != ENOENT) return not_done("looking at", parent, errno);
    if (auto made = make_folder(parent, 0700); !made) return made;
  }
  if (::mkdir(path.c_str(), mode & 0700) == 0) {
    const Fd made(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!made) return not_done("opening", path, errno);
    return set_mode(made, path, mode, owner);
  }
  if (errno != EEXIST) return not_done("making the folder", path, errno);
  if (::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return {};
  return Error{errc::failed_precondition, path + " exists and is not a folder"};
}

result<> make_file(const std::string& path, unsigned mode, std::optional<Owner> owner) {
  const Fd made(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0600));
  if (made) return set_mode(made, path, mode, owner);
  if (errno != EEXIST) return not_done("making the file", path, errno);
  struct stat found{};
  if (::lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode)) return {};
  return Error{errc::failed_precondition, path + " exists and is not a file"};
}

result<> remove_folder(const std::string& path, const std::string& root) {
  for (std::filesystem::path at = path; at.string().starts_with(root + "/"); at = at.parent_path()) {
    if (::rmdir(at.c_str()) == 0 || errno == ENOENT) continue;
    // A file is where a raw block volume was; it, and what is not empty, stays.
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
  char real[PATH_MAX];
  if (::realpath(plain.parent_path().c_str(), real) == nullptr)
    return not_done("looking for the folder that is to hold " + path + ":", plain.parent_path(), errno);
  return (std::filesystem::path(real) / name).string();
}

result<> read_device(const std::string& path) {
  // The largest logical block of a device, and the alignment that O_DIRECT may want.
  constexpr std::size_t block = 4096;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  const bool gone = !fd && (errno == ENXIO || errno == ENODEV || errno == ENOENT || errno == EIO);
  if (gone) return Error{errc::io, "opening " + path + ": " + std::strerror(errno)};
  if (!fd) return not_done("opening", path, errno);
  alignas(block) std::array<char, block> bytes;
  const ssize_t got = ::pread(fd.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && errno == EIO) return Error{errc::io, path + " gives I/O errors"};
  if (got < 0) return not_done("reading", path, errno);
  // A device that lost its size.
  if (got == 0) return Error{errc::io, path + " is empty"};
  return {};
}

}  // namespace ops

bool knows(const json::object& request) {
  const auto* op = request.if_contains("op");
  return op != nullptr && op->is_string() && std::string_view(op->as_string()).starts_with("manager.");
}

result<json::object> work(const json::object& request) {
  static const bool once = leave_outputs();
  static_cast<void>(once);
  const std::string_view op = request.at("op").as_string();
  const std::string path(request.at("path").as_string());
  if (op == kLook) {
    const auto sight = ops::look(path);
    if (!sight) return sight.error();
    return sight_to_json(*sight);
  }
  if (op == kUsers) {
    json::array users;
    for (const auto& user : ops::users(path)) users.emplace_back(user);
    return json::object{{"users", std::move(users)}};
  }
  if (op == kMakeFolder || op == kMakeFile) {
    std::optional<Owner> owner;
    if (request.contains("uid"))
      owner = {request.at("uid").to_number<unsigned>(), request.at("gid").to_number<unsigned>()};
    const auto mode = request.at("mode").to_number<unsigned>();
    return empty_reply(op == kMakeFolder ? ops::make_folder(path, mode, owner) : ops::make_file(path, mode, owner));
  }
  if (op == kRemoveFolder) return empty_reply(ops::remove_folder(path, std::string(request.at("root").as_string())));
  if (op == kRead) return empty_reply(ops::read_device(path));
  if (op == kResolve) {
    auto real = ops::resolve(path);
    if (!real) return real.error();
    return json::object{{"path", *real}};
  }
  return Error{errc::internal, "the helper does not know the work " + std::string(op)};
}

}  // namespace corbd::manager
