#include <charconv>

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

std::optional<std::uint64_t> kernel_number(const std::string& file) {
  const auto text = read_file(file, kMostBytes);
  std::uint64_t number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

}  // namespace corbd::host
