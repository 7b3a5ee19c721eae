#include "sysfs.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>

#include "corbd/core/sysfs.hpp"
#include "corbd/device/sysfs.hpp"

namespace corbd::nbd {
namespace {

namespace fs = std::filesystem;
using sysfs::attribute;
using sysfs::number;
using sysfs::number_of;

std::optional<device::Seen> read_device(const fs::path& folder, std::uint32_t index) {
  const auto backend = attribute(folder / "backend");
  // Both files are there only while the device is configured; `backend` only if it was given one.
  if (!backend && !attribute(folder / "pid")) return std::nullopt;
  const auto dev = attribute(folder / "dev");
  if (!dev) return std::nullopt;
  device::Seen seen;
  seen.index = index;
  seen.backend = backend.value_or("");
  seen.size = device::size_of(folder);
  std::tie(seen.dev_major, seen.dev_minor) = device::parse_dev(*dev);
  seen.io_timeout_ms = number_of<std::uint32_t>(folder / "queue/io_timeout");
  seen.waiting = sysfs::waiting_of(folder);
  seen.holders = device::holders_of(folder);
  return seen;
}

/// Of every nbd device, configured or not.
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

fs::path folder_of(const std::string& sysfs, std::uint32_t index) { return sysfs + "/block/nbd" + std::to_string(index); }

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
    if (auto backend = attribute(folder_of(sysfs, index) / "backend")) found.emplace_back(index, std::move(*backend));
  return found;
}

std::optional<device::Seen> read_one(const std::string& sysfs, std::uint32_t index) { return read_device(folder_of(sysfs, index), index); }

result<std::optional<std::uint32_t>> number_to_ask_for(const std::string& sysfs, const std::vector<std::uint32_t>& avoid) {
  if (avoid.empty()) return std::nullopt;
  const auto backends = read_backends(sysfs);
  if (!backends) return backends.error();
  const auto is_there = [&](std::uint32_t index) { return std::ranges::find(*backends, index, &std::pair<std::uint32_t, std::string>::first) != backends->end(); };
  if (std::ranges::all_of(avoid, is_there)) return std::nullopt;
  const auto known = indices(sysfs);  // also those on their way out, which the kernel refuses
  if (!known) return known.error();
  std::uint32_t number = 0;
  while (std::ranges::find(avoid, number) != avoid.end() || std::ranges::binary_search(*known, number)) ++number;
  return number;
}

bool driver_present(const std::string& sysfs) {
  std::error_code ignored;
  return fs::exists(sysfs + "/module/nbd", ignored);
}

}  // namespace corbd::nbd
