#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>

#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "node_work.hpp"

namespace corbd::manager {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNamed = 10;

/// Returns the link's text. Reading it asks no filesystem but /proc.
std::string read_link(const fs::path& link) {
  std::array<char, PATH_MAX> text;
  const ssize_t length = ::readlink(link.c_str(), text.data(), text.size());
  return length < 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(length));
}

bool lies_in(const std::string& path, const std::string& target) {
  return path == target || path.starts_with(target + "/");
}

bool has_open(const fs::path& process, const std::string& target) {
  for (const char* link : {"cwd", "root", "exe"})
    if (lies_in(read_link(process / link), target)) return true;
  std::error_code ended;
  for (fs::directory_iterator open(process / "fd", ended), end; !ended && open != end; open.increment(ended))
    if (lies_in(read_link(open->path()), target)) return true;
  return false;
}

}  // namespace

// Does not read /proc/<pid>/maps, which waits for a process that waits for a device (mmap_lock).
std::vector<std::string> ops::users(const std::string& target, const std::string& proc) {
  std::vector<std::string> all;
  std::size_t more = 0;
  std::error_code failed;
  for (fs::directory_iterator process(proc, failed), end; !failed && process != end; process.increment(failed)) {
    const std::string pid = process->path().filename();
    if (pid.find_first_not_of("0123456789") != pid.npos || !has_open(process->path(), target)) continue;
    const auto name = read_file(process->path() / "comm", 64);
    if (all.size() < kNamed)
      all.push_back((name ? printable(trimmed(*name)) : std::string("a process")) + " (" + pid + ")");
    else
      ++more;
  }
  if (more > 0) all.push_back(std::to_string(more) + " more");
  return all;
}

}  // namespace corbd::manager
