// Reading sysfs, which cannot hang.
#pragma once

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corbd::sysfs {

/// The first line. Nothing if the attribute is not there, or disappeared during the read.
std::optional<std::string> attribute(const std::filesystem::path& path);

/// The whole text, in decimal unless said otherwise.
template <class Number>
std::optional<Number> number(std::string_view text, int base = 10) {
  Number value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

/// 0 if it is not there, or is no number.
template <class Number>
Number number_of(const std::filesystem::path& path) {
  const auto text = attribute(path);
  return text ? number<Number>(*text).value_or(0) : 0;
}

/// The names in order; none if there is no such folder.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// By a block device's folder: the folders of the device-mapper devices above it and above its partitions.
std::vector<std::filesystem::path> holders_of(const std::filesystem::path& block);
/// By a block device's folder: the requests that the driver has and has not answered yet.
std::uint32_t waiting_of(const std::filesystem::path& block);
/// By a block device's folder: reads, writes, discards and flushes that have ended (Documentation/block/stat.rst).
std::uint64_t completed_of(const std::filesystem::path& block);

}  // namespace corbd::sysfs
