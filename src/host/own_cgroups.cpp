#include <algorithm>
#include <charconv>
#include <sstream>

#include "corbd/core/file.hpp"
#include "corbd/host/cgroup.hpp"

namespace corbd::host {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

}  // namespace

std::vector<std::string> own_cgroups(const std::string& cgroups, const std::string& own) {
  const auto lines = read_file(own, kMostBytes);
  const auto begin = lines ? lines->find("0::/") : std::string::npos;
  if (begin == std::string::npos) return {};
  std::string path = lines->substr(begin + 3, lines->find('\n', begin) - begin - 3);
  std::vector<std::string> all;
  for (;; path.resize(path.rfind('/'))) {
    all.push_back(cgroups + path);
    if (path.empty()) return all;
  }
}

std::string may_be_swapped(const std::string& root) {
  // By proc(5), a line of headings comes first, and each further line begins with a file or device.
  const auto text = read_file(root + "/proc/swaps", kMostBytes);
  std::istringstream lines(text ? *text : "");
  std::string line, swaps;
  std::getline(lines, line);
  while (std::getline(lines, line)) swaps += (swaps.empty() ? "" : ", ") + line.substr(0, line.find_first_of(" \t"));
  const auto groups = own_cgroups(root + "/sys/fs/cgroup", root + "/proc/self/cgroup");
  const auto forbids = [](const std::string& group) { return kernel_number(group + "/memory.swap.max") == 0U; };
  if (swaps.empty() || std::ranges::any_of(groups, forbids)) return "";
  return "the node has swap (" + swaps + "), and no cgroup that is seen here forbids it (memory.swap.max 0)";
}

std::optional<std::uint64_t> kernel_number(const std::string& file) {
  const auto text = read_file(file, kMostBytes);
  std::uint64_t number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

}  // namespace corbd::host
