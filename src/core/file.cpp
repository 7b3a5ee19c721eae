#include "corbd/core/file.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/core/text.hpp"

namespace corbd {
namespace {

Error failed(const std::string& doing, const std::string& path) {
  return {errc::state_write, doing + " " + path + ": " + std::strerror(errno)};
}

result<> sync_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return failed("syncing the folder", folder);
  return {};
}

result<> write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed("writing", path);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(fd) != 0) return failed("syncing", path);
  return {};
}

}  // namespace

result<> write_durably(const std::string& path, std::string_view content, mode_t mode) {
  const std::string tmp = path + ".tmp";
  {
    const Fd fd(::open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!fd) return failed("creating", tmp);
    if (auto written = write_all(fd.get(), content, tmp); !written) {
      ::unlink(tmp.c_str());
      return written;
    }
  }
  if (::rename(tmp.c_str(), path.c_str()) != 0) return failed("renaming to", path);
  return sync_folder_of(path);
}

result<> overwrite_durably(const std::string& from, const std::string& path, std::string_view content) {
  {
    const Fd fd(::open(from.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) return failed("opening", from);
    if (auto written = write_all(fd.get(), content, from); !written) return written;
  }
  if (::rename(from.c_str(), path.c_str()) != 0) return failed("renaming to", path);
  return sync_folder_of(path);
}

result<std::string> read_file(const std::string& path, std::size_t limit) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return Error{errc::not_found, path + " does not exist"};
  if (!fd) return Error{errc::unavailable, "opening " + path + ": " + std::strerror(errno)};
  std::string content;
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{errc::unavailable, "reading " + path + ": " + std::strerror(errno)};
    if (got == 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(got));
    if (content.size() > limit)
      return Error{errc::state_corrupt, path + " is longer than " + std::to_string(limit) + " bytes"};
  }
}

result<> try_writing(const std::string& path) {
  const auto failed = [&] { return Error{errc::state_write, "writing " + path + ": " + std::strerror(errno)}; };
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return failed();
  if (::write(fd.get(), "\n", 1) != 1) return failed();
  return {};
}

result<> remove_durably(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return failed("removing", path);
  std::error_code ignored;
  // Somebody may have removed the whole folder.
  const bool folder_gone = !std::filesystem::exists(std::filesystem::path(path).parent_path(), ignored) && !ignored;
  return folder_gone ? result<>() : sync_folder_of(path);
}

result<> make_folder(const std::string& path, mode_t mode) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return failed("making the folder", path);
  if (::access(path.c_str(), W_OK | X_OK) != 0) return failed("writing into", path);
  return {};
}

result<> make_private_folder(const std::string& path) {
  if (auto made = make_folder(path, 0700); !made) return made;
  struct stat there{};
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fstat(fd.get(), &there) != 0) return failed("looking at the folder", path);
  // A folder such as /run is the system's, and a sticky one everybody's.
  const bool own = std::filesystem::path(path).parent_path().has_relative_path() && (there.st_mode & S_ISVTX) == 0;
  constexpr mode_t others = 0077;
  if (own && (there.st_mode & others) != 0 && ::fchmod(fd.get(), there.st_mode & 07777 & ~others) != 0)
    return failed("closing to other users the folder", path);
  return {};
}

bool still_names(const std::string& path, int fd) {
  struct stat open{}, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

std::string sha256_hex(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned length = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha256(), nullptr);
  return hex({reinterpret_cast<const char*>(digest.data()), length});
}

}  // namespace corbd
