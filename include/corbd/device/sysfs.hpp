// Attributes of sysfs that every kind of block device has.
#pragma once

#include <tuple>

#include "corbd/core/sysfs.hpp"
#include "corbd/device/device.hpp"

namespace corbd::device {

/// Parses "43:0"; returns zeroes for any other text.
inline std::pair<std::uint32_t, std::uint32_t> parse_dev(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return {0, 0};
  return {sysfs::number<std::uint32_t>(text.substr(0, colon)).value_or(0),
          sysfs::number<std::uint32_t>(text.substr(colon + 1)).value_or(0)};
}

/// Returns a device's size in bytes. Takes the device's folder.
inline std::uint64_t size_of(const std::filesystem::path& block) {
  return sysfs::number_of<std::uint64_t>(block / "size") * 512;  // the unit of that file, whatever the block size
}

/// Whether the driver or BLKROSET, which outlives a disconnect, made the device read-only. Takes its folder.
inline bool is_read_only(const std::filesystem::path& block) { return sysfs::attribute(block / "ro") == "1"; }

/// Returns the devices above a device and above its partitions, and those above them: a LUKS mapping with integrity is
/// the second one. The entries are links to their own folders.
inline std::vector<UpperDevice> holders_of(const std::filesystem::path& block) {
  auto folders = sysfs::holders_of(block);
  std::vector<UpperDevice> holders;
  for (std::size_t at = 0; at < folders.size(); ++at) {
    const std::filesystem::path folder = folders[at];
    UpperDevice& holder = holders.emplace_back();
    holder.name = folder.filename().string();
    holder.mapping = sysfs::attribute(folder / "dm/name").value_or("");
    holder.maker = maker_of(sysfs::attribute(folder / "dm/uuid").value_or(""));
    holder.read_only = is_read_only(folder);
    holder.size = size_of(folder);
    std::tie(holder.dev_major, holder.dev_minor) = parse_dev(sysfs::attribute(folder / "dev").value_or(""));
    for (auto& above : sysfs::holders_of(folder)) folders.push_back(std::move(above));
  }
  return holders;
}

}  // namespace corbd::device
