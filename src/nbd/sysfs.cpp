#include "sysfs.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <tuple>

#include "corbd/core/file.hpp"

namespace corbd::nbd {
namespace {

namespace fs = std::filesystem;

/// The first line; nothing when the attribute is not there, or went while it was read.
std::optional<std::string> attribute(const fs::path& path) {
  auto text = read_file(path.string(), 4096);  // a page: sysfs has no longer ones
  if (!text) return std::nullopt;
  return text->substr(0, text->find('\n'));
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class Number>
Number number_of(const fs::path& path) {
  const auto text = attribute(path);
  return text ? number<Number>(*text).value_or(0) : 0;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t size_of(const fs::path& folder) {
  return number_of<std::uint64_t>(folder / "size") * 512;  // the unit of that file, whatever the block size
}

/// "43:0"
std::pair<std::uint32_t, std::uint32_t> parse_dev(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  if (colon == text.size()) return {0, 0};
  return {number<std::uint32_t>(text.substr(0, colon)).value_or(0), number<std::uint32_t>(text.substr(colon + 1)).value_or(0)};
}

/// The entries are links to the holders' own folders.
std::vector<device::Holder> read_holders(const fs::path& folder) {
  std::vector<device::Holder> holders;
  for (const auto& name : names_in(folder)) {
    device::Holder& holder = holders.emplace_back();
    holder.name = name;
    holder.mapping = attribute(folder / name / "dm/name").value_or("");
    holder.size = size_of(folder / name);
    std::tie(holder.dev_major, holder.dev_minor) = parse_dev(attribute(folder / name / "dev").value_or(""));
  }
  return holders;
}

std::optional<device::Seen> read_device(const fs::path& folder, std::uint32_t index) {
  const auto backend = attribute(folder / "backend");
  // Both files are there only while the device is configured; `backend` only if it was given one.
  if (!backend && !attribute(folder / "pid")) return std::nullopt;
  const auto dev = attribute(folder / "dev");
  if (!dev) return std::nullopt;
  device::Seen seen;
  seen.index = index;
  seen.backend = backend.value_or("");
  seen.size = size_of(folder);
  std::tie(seen.dev_major, seen.dev_minor) = parse_dev(*dev);
  seen.io_timeout_ms = number_of<std::uint32_t>(folder / "queue/io_timeout");
  // "reads writes", both counts
  if (const auto inflight = attribute(folder / "inflight")) {
    std::istringstream counts(*inflight);
    for (std::uint32_t count; counts >> count;) seen.waiting += count;
  }
  seen.holders = read_holders(folder / "holders");
  const std::string partition = folder.filename().string() + "p";
  for (const auto& name : names_in(folder))
    if (name.starts_with(partition)) std::ranges::copy(read_holders(folder / name / "holders"), std::back_inserter(seen.holders));
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

bool driver_present(const std::string& sysfs) {
  std::error_code ignored;
  return fs::exists(sysfs + "/module/nbd", ignored);
}

}  // namespace corbd::nbd
