#include "corbd/nbd/sysfs.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "corbd/core/sysfs.hpp"
#include "corbd/device/sysfs.hpp"

namespace corbd::nbd {
namespace {

namespace fs = std::filesystem;
using sysfs::attribute;
using sysfs::number;
using sysfs::number_of;

/// Both files exist only while the device is configured, and `backend` only if the device was given an identifier.
bool is_configured(const fs::path& folder) {
  std::error_code failed;
  return fs::exists(folder / "pid", failed) || fs::exists(folder / "backend", failed);
}

std::optional<device::Seen> read_device(const fs::path& folder, std::uint32_t index) {
  const auto backend = attribute(folder / "backend");
  if (!backend && !is_configured(folder)) return std::nullopt;
  const auto dev = attribute(folder / "dev");
  if (!dev) return std::nullopt;
  device::Seen seen;
  seen.index = index;
  seen.backend = backend.value_or("");
  seen.size = device::size_of(folder);
  std::tie(seen.dev_major, seen.dev_minor) = device::parse_dev(*dev);
  seen.io_timeout_ms = number_of<std::uint32_t>(folder / "queue/io_timeout");
  // Most devices are idle, and cost no further read.
  if (sysfs::waiting_of(folder) > 0) {
    seen.completed = sysfs::completed_of(folder);
    seen.waiting = sysfs::waiting_of(folder);
  }
  seen.read_only = device::is_read_only(folder);
  seen.holders = device::holders_of(folder);
  return seen;
}

/// Returns every nbd device, configured or not.
result<std::vector<std::uint32_t>> indices(const std::string& sysfs) {
  std::vector<std::uint32_t> all;
  std::error_code failed;
  fs::directory_iterator at(sysfs + "/block", failed);
  for (const fs::directory_iterator end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    const auto index = name.starts_with("nbd") ? number<std::uint32_t>(name.substr(3)) : std::nullopt;
    if (index) all.push_back(*index);
  }
  if (failed) return Error{errc::unavailable, "listing " + sysfs + "/block: " + failed.message()};
  std::sort(all.begin(), all.end());
  return all;
}

fs::path folder_of(const std::string& sysfs, std::uint32_t index) {
  return sysfs + "/block/nbd" + std::to_string(index);
}

}  // namespace

result<std::vector<device::Seen>> read_inventory(const std::string& sysfs) {
  const auto all = indices(sysfs);
  if (!all) return all.error();
  std::vector<device::Seen> found;
  for (const std::uint32_t index : *all)
    if (auto seen = read_one(sysfs, index)) found.push_back(std::move(*seen));
  return found;
}

result<std::vector<std::pair<std::uint32_t, std::string>>> read_backends(const std::string& sysfs) {
  const auto all = indices(sysfs);
  if (!all) return all.error();
  std::vector<std::pair<std::uint32_t, std::string>> found;
  for (const std::uint32_t index : *all)
    if (auto backend = read_backend(sysfs, index)) found.emplace_back(index, std::move(*backend));
  return found;
}

std::optional<device::Seen> read_one(const std::string& sysfs, std::uint32_t index) {
  return read_device(folder_of(sysfs, index), index);
}

std::optional<std::string> read_backend(const std::string& sysfs, std::uint32_t index) {
  return attribute(folder_of(sysfs, index) / "backend");
}

std::string read_pid(const std::string& sysfs, std::uint32_t index) {
  return attribute(folder_of(sysfs, index) / "pid").value_or("");
}

result<std::vector<Number>> free_numbers(const std::string& sysfs, const std::vector<std::uint32_t>& avoid,
                                         std::size_t count) {
  std::error_code failed;
  if (!fs::is_directory(sysfs + "/block", failed))
    return Error{errc::unavailable, "looking at " + sysfs + "/block: " + (failed ? failed.message() : "no folder")};
  // Most numbers below the first free one are to be avoided. Those cost no look at the kernel's folders.
  const std::unordered_set<std::uint32_t> avoided(avoid.begin(), avoid.end());
  std::vector<Number> numbers;
  for (std::uint32_t index = 0; numbers.size() < count; ++index) {
    if (avoided.contains(index)) continue;
    const fs::path folder = folder_of(sysfs, index);
    const bool exists = fs::exists(folder, failed);
    if (!exists || !is_configured(folder)) numbers.push_back({index, exists});
  }
  return numbers;
}

std::vector<std::uint32_t> read_only_numbers(const std::string& sysfs) {
  auto all = indices(sysfs);
  if (!all) return {};
  std::erase_if(*all, [&](std::uint32_t index) {
    const fs::path folder = folder_of(sysfs, index);
    return is_configured(folder) || !device::is_read_only(folder);
  });
  return *all;
}

std::vector<std::uint32_t> zeroing_numbers(const std::string& sysfs) {
  auto all = indices(sysfs);
  if (!all) return {};
  std::erase_if(*all, [&](std::uint32_t index) {
    return number_of<std::uint64_t>(folder_of(sysfs, index) / "queue/write_zeroes_max_bytes") == 0;
  });
  return *all;
}

bool driver_present(const std::string& sysfs) {
  std::error_code ignored;
  return fs::exists(sysfs + "/module/nbd", ignored);
}

}  // namespace corbd::nbd
