#include "corbd/core/sysfs.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include "corbd/core/file.hpp"

namespace corbd::sysfs {

namespace fs = std::filesystem;

std::optional<std::string> attribute(const fs::path& path) {
  auto text = read_file(path.string(), 4096);  // a page, the longest that a file of sysfs can be
  if (!text) return std::nullopt;
  return text->substr(0, text->find('\n'));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<fs::path> holders_of(const fs::path& block) {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& folder) {
    for (const auto& name : names_in(folder)) folders.push_back(folder / name);
  };
  add(block / "holders");
  const std::string partition = block.filename().string() + "p";
  for (const auto& name : names_in(block))
    if (name.starts_with(partition)) add(block / name / "holders");
  return folders;
}

std::uint32_t waiting_of(const fs::path& block) {
  std::uint32_t waiting = 0;
  // The attribute holds two counts: "reads writes".
  std::istringstream counts(attribute(block / "inflight").value_or(""));
  for (std::uint32_t count; counts >> count;) waiting += count;
  return waiting;
}

std::uint64_t completed_of(const fs::path& block) {
  constexpr std::array<std::size_t, 4> kCounts{0, 4, 11, 15};  // columns of reads, writes, discards and flushes
  std::uint64_t completed = 0;
  std::istringstream stat(attribute(block / "stat").value_or(""));
  std::uint64_t number = 0;
  for (std::size_t at = 0; stat >> number; ++at)
    if (std::ranges::find(kCounts, at) != kCounts.end()) completed += number;
  return completed;
}

}  // namespace corbd::sysfs
