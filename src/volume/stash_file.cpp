#include "corbd/volume/stash_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

constexpr std::size_t kMaxStashFile = 65536;

}  // namespace

using cephcsi::Stash;
using cephcsi::stash_file;

result<> write_stash(const std::string& staging_path, const Stash& stash) {
  return write_durably(stash_file(staging_path), encode(stash), 0600);
}

result<> drop_stash(const std::string& staging_path, const std::string& log) {
  struct stat found{};
  if (!log.empty() && ::lstat(log.c_str(), &found) == 0 && S_ISREG(found.st_mode) && ::unlink(log.c_str()) != 0)
    log::warning("stash.log_stays", {{"file", log}, {"error", std::strerror(errno)}});
  const std::string file = stash_file(staging_path);
  // A temporary file that a crash left would keep kubelet from removing the folder.
  ::unlink((file + ".tmp").c_str());
  if (::access(file.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  return remove_durably(file);
}

result<std::optional<Stash>> read_stash(const std::string& staging_path) {
  const std::string file = stash_file(staging_path);
  const auto text = read_file(file, kMaxStashFile);
  if (!text && text.error().code == errc::not_found) return std::optional<Stash>();
  if (!text) return text.error();
  auto stash = cephcsi::parse_stash(*text);
  if (!stash) return with_context(file, stash.error());
  return std::optional<Stash>(std::move(*stash));
}

}  // namespace corbd::volume
