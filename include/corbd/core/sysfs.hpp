// Reads sysfs. Such a read cannot hang.
#pragma once

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corbd::sysfs {

/// Returns the first line. Nothing: the attribute does not exist, or disappeared during the read.
std::optional<std::string> attribute(const std::filesystem::path& path);

/// Parses the whole text as a number, in decimal unless `base` says otherwise.
template <class Number>
std::optional<Number> number(std::string_view text, int base = 10) {
  Number value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Returns 0 if the attribute does not exist, or is no number.
template <class Number>
Number number_of(const std::filesystem::path& path) {
  const auto text = attribute(path);
  return text ? number<Number>(*text).value_or(0) : 0;
}

/// Returns the names in order; none if the folder does not exist.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// Returns the folders of the device-mapper devices above a block device and above its partitions. Takes the device's
/// folder.
std::vector<std::filesystem::path> holders_of(const std::filesystem::path& block);
/// By a block device's folder: the requests that the driver has begun and has not answered yet. nbd begins none while
/// it has no link, so what waits for the next link does not count.
std::uint32_t waiting_of(const std::filesystem::path& block);
/// Returns the number of reads, writes, discards and flushes that have ended (Documentation/block/stat.rst). Takes the
/// device's folder.
std::uint64_t completed_of(const std::filesystem::path& block);

}  // namespace corbd::sysfs
